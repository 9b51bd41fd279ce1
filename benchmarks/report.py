"""Measure the report of a large table: time to make it, its size, and how fast it opens.

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

from calibrank import Gaussian
from calibrank.evidence import naive
from calibrank.report.html_report import fingerprint_files, report_on_rows
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

COLUMNS = Columns("score", "label", naive, item="item_id", user="user_id", others=("country",))


def write_table(path: Path, rows: int, users: int, seed: int = 0) -> None:
    """Write a log with long names and a long tail of items, as real ones have."""
    rng = np.random.default_rng(seed)
    liked = rng.random(rows) < 0.1
    scores = rng.normal(1.5 * liked, 1)
    user_numbers = rng.integers(0, users, rows).tolist()
    item_numbers = (rng.pareto(1.2, rows) * 50).astype(np.int64) % 50_000
    countries = np.array(["NL", "DE", "FR", "PT"])[rng.integers(0, 4, rows)]
    item_names = [f"A rather long product name, number {item}" for item in item_numbers.tolist()]
    columns = {
        "user_id": pa.array([f"customer-{user:06d}" for user in user_numbers]),
        "item_id": pa.array(item_names),
        "score": scores,
        "label": liked.astype(np.int8),
        "country": pa.array(countries.tolist()),
    }
    pq.write_table(pa.table(columns), path)


def time_to_open(path: Path) -> tuple[float, float]:
    """Return the seconds until the page is drawn and until the slider responds."""
    from playwright.sync_api import sync_playwright

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
        page.text_content("#tile-items")
        responded = time.perf_counter() - start
        browser.close()
    return drawn, responded


def measure(folder: Path, rows: int, users: int) -> None:
    path = folder / "table.parquet"
    out = folder / "report.html"
    write_table(path, rows, users)
    table = Table.find(str(path))
    start = time.perf_counter()
    read = read_report_rows(table, COLUMNS, Rules(skip=False))
    read_time = time.perf_counter() - start
    fitted = Gaussian().fit(read.scores, read.evidence)
    source = {"source": path.name, "fingerprint": fingerprint_files(table.files)}
    made = report_on_rows(read, fitted, {**source, "command": "benchmark"})
    made.save(out)
    total_time = time.perf_counter() - start
    size = out.stat().st_size / 1e6
    print(f"{rows:,} rows, {users:,} users")
    print(f"read in {read_time:.1f} s, made in {total_time:.1f} s, {size:.2f} MB")
    if shutil.which("chromium"):
        drawn, responded = time_to_open(out)
        print(f"drawn after {drawn:.2f} s, slider responded after {responded:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments.rows, arguments.users)


if __name__ == "__main__":
    main()
