"""Size: arrays and Parquet of many rows against the limits of memory and of pyarrow, in the same run.

`python benchmarks/scale.py` runs at 1e8 rows (needs 6 GB of memory and 4 GB of disk); `--rows 2000000` for a taste.
Prints ratios; exits 1 if one is missed.
"""

import argparse
import compileall
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from sklearn.calibration import _SigmoidCalibration

import calibrank
from calibrank import Gaussian

CHUNK = 2_000_000
COLUMNS = ["score", "label", "item"]
SCAN = f"""
import sys
import pyarrow.dataset as ds
print(sum(batch.num_rows for batch in ds.dataset(sys.argv[1]).to_batches(columns={COLUMNS!r})))
"""
results: list[bool] = []


def best(function: Callable[[], object], repeats: int = 4) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def report(what: str, value: float, limit: float, *, least: bool = False) -> None:
    met = value >= limit if least else value <= limit
    results.append(met)
    print(
        f"{'ok  ' if met else 'MISS'} {what}: {value:.2f} (at {'least' if least else 'most'} {limit:g})",
        flush=True,
    )


def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores, labels = np.empty(rows, dtype=np.float32), np.empty(rows, dtype=np.float32)
    for start in range(0, rows, CHUNK):
        part = slice(start, min(start + CHUNK, rows))
        count = part.stop - part.start
        labels[part] = rng.random(count, dtype=np.float32) < 0.01
        scores[part] = rng.standard_normal(count, dtype=np.float32) + 1.5 * labels[part]
    return scores, labels


def arrays(rows: int) -> None:
    scores, labels = make(rows)
    fitted = Gaussian().fit(scores, labels)
    fitted.predict(scores)
    sums = best(lambda: (scores.sum(), labels.sum()))
    report(
        f"fit {rows:.0e} rows / summing both arrays",
        best(lambda: Gaussian().fit(scores, labels)) / sums,
        12,
    )
    tracemalloc.start()
    Gaussian().fit(scores, labels)
    report("fit: extra memory in MB", tracemalloc.get_traced_memory()[1] / 1e6, 100)
    tracemalloc.stop()
    some = min(rows, 1_000_000)
    peer = best(lambda: _SigmoidCalibration().fit(scores[:some], labels[:some]), 2) / some
    report(
        "fit: times faster a row than scikit-learn's Platt",
        peer * rows / best(lambda: Gaussian().fit(scores, labels)),
        40,
        least=True,
    )
    report(
        f"predict {rows:.0e} float32 / copying them",
        best(lambda: fitted.predict(scores)) / best(scores.copy),
        3,
    )


def write(rows: int, path: Path) -> None:
    rng = np.random.default_rng(1)
    scores, labels = make(rows)
    fields = [("score", pa.float32()), ("label", pa.int8()), ("item", pa.int32())]
    with pq.ParquetWriter(path, pa.schema(fields)) as writer:
        for start in range(0, rows, CHUNK):
            part = slice(start, min(start + CHUNK, rows))
            items = (rng.random(part.stop - part.start) ** 3 * 50_000).astype(np.int32)
            writer.write_table(
                pa.table([scores[part], labels[part].astype(np.int8), items], schema=writer.schema)
            )


def process(*arguments: object) -> tuple[float, float]:
    """Seconds and peak memory in GB of a Python process, from start to end."""
    start, peak = time.perf_counter(), 0.0
    child = subprocess.Popen([sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL)  # noqa: S603  (our own command)
    while (
        child.poll() is None
    ):  # the kernel's own figure after the end would count this process's memory too
        status = Path(f"/proc/{child.pid}/status").read_text()
        peak = max(
            [
                peak,
                *(
                    float(line.split()[1]) / 1e6
                    for line in status.splitlines()
                    if line.startswith("VmHWM")
                ),
            ]
        )
        time.sleep(0.01)
    if child.returncode:
        sys.exit(f"{arguments} failed")
    return time.perf_counter() - start, peak


def command(*arguments: object) -> tuple[float, float]:
    return process("-m", "calibrank", *arguments)


def copy(source: Path, target: Path) -> None:
    with pq.ParquetWriter(
        target, pq.read_schema(source).append(pa.field("p", pa.float32()))
    ) as writer:
        for batch in ds.dataset(source).to_batches():
            writer.write_batch(
                pa.RecordBatch.from_arrays(
                    [*batch.columns, batch.column("score")], schema=writer.schema
                )
            )


def parquet(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, out, fitted = (
            Path(folder) / "table.parquet",
            Path(folder) / "out.parquet",
            Path(folder) / "map.json",
        )
        write(rows, table)
        fits, scans, inside = [], [], []
        for _ in range(9):  # in turns, so that all meet the same noise, and by their medians
            fits.append(command("fit", table, "--item", "item", "-o", fitted))
            scans.append(process("-c", SCAN, table)[0])
            inside.append(
                best(
                    lambda: sum(b.num_rows for b in ds.dataset(table).to_batches(columns=COLUMNS)),
                    1,
                )
            )
        seconds = [run[0] for run in fits]
        middle, least = (
            [f(each) for each in (seconds, scans, inside)] for f in (statistics.median, min)
        )
        words = "fit {:.2f} s, a process that scans {:.2f} s, the scan in it {:.2f} s"
        print(
            f"medians: {words.format(*middle)}; at best: {words.format(*least)}, {least[0] / least[2]:.2f} times it"
        )
        report(
            "calibrank fit (popularity, ips) / a Python process that scans its columns",
            middle[0] / middle[1],
            2.5,
        )
        report("calibrank fit, start-up and all / the scan alone", middle[0] / middle[2], 2.5)
        report("calibrank fit: peak memory in GB", max(run[1] for run in fits), 1.5)
        plain = best(lambda: copy(table, out), 2)
        out.unlink()
        runs = []
        for _ in range(2):
            runs.append(command("apply", fitted, table, "-o", out))
            out.unlink()
        report(
            "calibrank apply / reading and writing with pyarrow",
            min(run[0] for run in runs) / plain,
            2.5,
        )
        report("calibrank apply: peak memory in GB", max(run[1] for run in runs), 1.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="exit 0 whatever the ratios: small tables miss them",
    )
    options = parser.parse_args()
    compileall.compile_dir(
        str(Path(calibrank.__file__).parent), quiet=1
    )  # as pip leaves what it installs
    arrays(options.rows)
    parquet(options.rows)
    sys.exit(0 if options.report_only or all(results) else 1)


if __name__ == "__main__":
    main()
