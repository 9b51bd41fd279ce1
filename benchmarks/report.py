"""The report of a large table: how long it takes to make, how large it is, how fast it opens.

python benchmarks/report.py [--rows 1000000] [--users 100000]
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from calibrank.report.build import report_of
from calibrank.report.from_table import read_ledger

from calibrank.evidence import naive
from calibrank.report.provenance import fingerprint_files
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def make_table(path: Path, rows: int, users: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    liked = rng.random(rows) < 0.1
    scores = rng.normal(1.5 * liked, 1)
    who = rng.integers(0, users, rows)
    what = (rng.pareto(1.2, rows) * 50).astype(np.int64) % 50_000
    columns = {
        "user_id": pa.array([f"customer-{user:06d}" for user in who.tolist()]),
        "item_id": pa.array(
            [f"A rather long product name, number {item}" for item in what.tolist()]
        ),
        "score": scores,
        "label": liked.astype(np.int8),
        "country": pa.array(np.array(["NL", "DE", "FR", "PT"])[rng.integers(0, 4, rows)].tolist()),
    }
    pq.write_table(pa.table(columns), path)


def open_page(path: Path) -> tuple[float, float]:
    """Seconds until the page is drawn, and until the slider has answered."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only where there is a browser)

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--headless"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        drawn = time.perf_counter() - start
        page.focus("#slider")
        page.keyboard.press("ArrowRight")
        page.text_content("#t-shown")
        answered = time.perf_counter() - start
        browser.close()
    return drawn, answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "table.parquet", Path(folder) / "report.html"
        make_table(table, wanted.rows, wanted.users)
        start = time.perf_counter()
        columns = Columns(
            "score", "label", naive, item="item_id", user="user_id", others=("country",)
        )
        source = Table.find(str(table))
        ledger = read_ledger(source, columns, Rules(skip=False))
        read = time.perf_counter() - start
        report_of(ledger, None, "table.parquet", fingerprint_files(source.files), "benchmark").save(
            out
        )
        made = time.perf_counter() - start
        size = out.stat().st_size / 1e6
        print(
            f"{wanted.rows:,} rows, {wanted.users:,} users: read in {read:.1f} s, made in {made:.1f} s, {size:.2f} MB"
        )
        if shutil.which("chromium"):
            drawn, answered = open_page(out)
            print(f"drawn after {drawn:.2f} s, slider answered after {answered:.2f} s")


if __name__ == "__main__":
    main()
