"""Scale: arrays and Parquet tables of many rows against the limits of memory and of pyarrow.

`python benchmarks/scale.py` uses 1e8 rows and needs 6 GB of memory and 4 GB of disk; for a quick
run, use `--rows 2000000`. Prints ratios measured in the same run; exits with 1 if one is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from sklearn.calibration import _SigmoidCalibration

import calibrank
from calibrank import Gaussian

CHUNK_ROWS = 2_000_000
COLUMNS = ["score", "label", "item"]
SCAN = f"""
import sys
import pyarrow.dataset as ds
print(sum(batch.num_rows for batch in ds.dataset(sys.argv[1]).to_batches(columns={COLUMNS!r})))
"""
results: list[bool] = []
COMPILED = tempfile.TemporaryDirectory()


def best(function: Callable[[], object], repeats: int = 4) -> float:
    """Return the shortest time of several calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def report(what: str, value: float, limit: float, *, least: bool = False) -> None:
    """Print a measured value and whether it is within its limit."""
    met = value >= limit if least else value <= limit
    results.append(met)
    verdict = "ok  " if met else "MISS"
    bound = "at least" if least else "at most"
    print(f"{verdict} {what}: {value:.2f} ({bound} {limit:g})", flush=True)


def chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows))


def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = np.empty(rows, dtype=np.float32)
    labels = np.empty(rows, dtype=np.float32)
    for chunk in chunks(rows):
        count = chunk.stop - chunk.start
        labels[chunk] = rng.random(count, dtype=np.float32) < 0.01
        noise = rng.standard_normal(count, dtype=np.float32)
        scores[chunk] = noise + 1.5 * labels[chunk]
    return scores, labels


def arrays(rows: int) -> None:
    scores, labels = make(rows)

    def fit() -> calibrank.CalibrationMap:
        return Gaussian().fit(scores, labels)

    fitted = fit()
    fitted.predict(scores)  # loads what is loaded once
    sums = best(lambda: (scores.sum(), labels.sum()))
    report(f"fit {rows:.0e} rows / summing both arrays", best(fit) / sums, 12)
    tracemalloc.start()
    fit()
    report("fit: extra memory in MB", tracemalloc.get_traced_memory()[1] / 1e6, 100)
    tracemalloc.stop()
    some = min(rows, 1_000_000)
    peer = best(lambda: _SigmoidCalibration().fit(scores[:some], labels[:some]), 2) / some
    report(
        "fit: times faster per row than scikit-learn's Platt",
        peer * rows / best(fit),
        40,
        least=True,
    )
    copying = best(scores.copy)
    predicting = best(lambda: fitted.predict(scores))
    report(f"predict {rows:.0e} float32 / copying them", predicting / copying, 3)


def write(rows: int, path: Path) -> None:
    rng = np.random.default_rng(1)
    scores, labels = make(rows)
    fields = [("score", pa.float32()), ("label", pa.int8()), ("item", pa.int32())]
    with pq.ParquetWriter(path, pa.schema(fields)) as writer:
        for chunk in chunks(rows):
            count = chunk.stop - chunk.start
            items = (rng.random(count) ** 3 * 50_000).astype(np.int32)
            columns = [scores[chunk], labels[chunk].astype(np.int8), items]
            writer.write_table(pa.table(columns, schema=writer.schema))


class Run(NamedTuple):
    """A Python process, from start to end."""

    seconds: float
    memory: float
    """Peak, in GB."""
    processor: float
    """Seconds, of all threads."""


def run(*arguments: object) -> Run:
    """Run a Python process and measure it."""
    start = time.perf_counter()
    peak = 0.0
    command = [sys.executable, *map(str, arguments)]
    # pip compiles what it installs; a source tree, or packages of other tools, may not be.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": COMPILED.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = children_time()
    child = subprocess.Popen(  # noqa: S603  (our own command)
        command, stdout=subprocess.DEVNULL, env=environment
    )
    # The kernel's figure after the end would include this process's own memory.
    while child.poll() is None:
        peak = max(peak, peak_memory(child.pid))
        time.sleep(0.01)
    if child.returncode:
        sys.exit(f"{arguments} failed")
    return Run(time.perf_counter() - start, peak, children_time() - before)


def children_time() -> float:
    """Processor seconds of all processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def peak_memory(process: int) -> float:
    """Return the peak memory of a process in GB, or 0 if it has ended."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return float(line.split()[1]) / 1e6
    return 0.0


def command(*arguments: object) -> Run:
    return run("-m", "calibrank", *arguments)


def scan(table: Path) -> int:
    return sum(batch.num_rows for batch in ds.dataset(table).to_batches(columns=COLUMNS))


def copy(source: Path, target: Path) -> None:
    """Copy a table with one more column, with pyarrow alone."""
    schema = pq.read_schema(source).append(pa.field("p", pa.float32()))
    with pq.ParquetWriter(target, schema) as writer:
        for batch in ds.dataset(source).to_batches():
            columns = [*batch.columns, batch.column("score")]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def parquet(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        fitted = Path(folder) / "map.json"
        write(rows, table)
        measure_fit(table, fitted)
        measure_apply(table, fitted, Path(folder) / "out.parquet")


def measure_fit(table: Path, fitted: Path) -> None:
    fits: list[Run] = []
    processes: list[float] = []
    scans: list[float] = []
    for _ in range(9):  # in turn, so that noise affects all of them alike
        fits.append(command("fit", table, "--item", "item", "--method", "gaussian", "-o", fitted))
        processes.append(run("-c", SCAN, table).seconds)
        scans.append(best(lambda: scan(table), 1))
    seconds = [fit.seconds for fit in fits]
    for name, choose in (("medians", statistics.median), ("at best", min)):
        ratio = choose(seconds) / choose(scans)
        print(
            f"{name}: fit {choose(seconds):.2f} s, a process that scans {choose(processes):.2f} s, "
            f"the scan in it {choose(scans):.2f} s; fit / scan {ratio:.2f}"
        )
    median = statistics.median(seconds)
    report(
        "calibrank fit (popularity, ips) / a Python process that scans its columns",
        median / statistics.median(processes),
        2.5,
    )
    report(
        "calibrank fit, with its start-up / the scan alone", median / statistics.median(scans), 2.5
    )
    report("calibrank fit: peak memory in GB", max(fit.memory for fit in fits), 1.5)


def measure_apply(table: Path, fitted: Path, out: Path) -> None:
    copying = best(lambda: copy(table, out), 2)
    runs = []
    for _ in range(2):
        out.unlink()  # a file that is up to date would not be written again
        runs.append(command("apply", fitted, table, "-o", out))
    report(
        "calibrank apply / reading and writing with pyarrow",
        min(run.seconds for run in runs) / copying,
        2.5,
    )
    report("calibrank apply: peak memory in GB", max(run.memory for run in runs), 1.5)


def csv(rows: int) -> None:
    """Evaluating a CSV table, with a bootstrap over users, against fitting a map on it."""
    scores, labels = make(rows)
    rng = np.random.default_rng(2)
    columns = {"user": rng.integers(0, max(1, rows // 25), rows), "score": scores}
    with tempfile.TemporaryDirectory() as folder:
        table, fitted = Path(folder) / "table.csv", Path(folder) / "map.json"
        pa_csv.write_csv(pa.table(columns | {"label": labels.astype(np.int8)}), table)
        given = (table, "--map", fitted, "--user", "user")
        page = Path(folder) / "page.html"
        commands = {
            "fit": ("fit", table, "--log", "impressions", "-o", fitted),
            "evaluate": ("evaluate", *given),
            "report": ("report", *given, "-o", page),
        }
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(3):  # in turn, so that noise affects all of them alike
            for name, arguments in commands.items():
                runs[name].append(command(*arguments))
    seconds = {name: min(run.seconds for run in of_name) for name, of_name in runs.items()}
    processor = {name: min(run.processor for run in of_name) for name, of_name in runs.items()}
    print(f"{rows:.0e} rows of CSV: the fit takes {seconds['fit']:.2f} s")
    for name in ("evaluate", "report"):
        ratio = processor[name] / processor["fit"]
        print(f"calibrank {name} / calibrank fit, CSV, processor time of all threads: {ratio:.2f}")
        report(f"calibrank {name} / calibrank fit, CSV", seconds[name] / seconds["fit"], 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="exit with 0 whatever the ratios: those of small tables are missed",
    )
    options = parser.parse_args()
    arrays(options.rows)
    parquet(options.rows)
    csv(options.rows // 20)
    sys.exit(0 if options.report_only or all(results) else 1)


if __name__ == "__main__":
    main()
