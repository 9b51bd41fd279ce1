"""Spark: summary and apply against a plain `select(avg(score))` scan of the same Parquet table, in the same run.

`python benchmarks/spark.py` runs at 1e7 rows on two cores; `--rows 100000000` needs 1.1 GB of disk. Prints ratios,
what was shuffled and what the driver holds; exits 1 if a gate is missed. Gated is applying maps, at 3 scans.
The summary's aim of 3 scans is printed as missed and not gated; Spark's own `groupBy` by a simple key, into about as
many groups, is timed beside it to tell what is left to gain.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import calibrank as cr
from calibrank import spark as engine

CHUNK = 2_500_000
GROUPS = "Spark's own groupBy"
results: list[bool] = []


def write(rows: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, start in enumerate(range(0, rows, CHUNK)):
        count = min(CHUNK, rows - start)
        labels = rng.random(count) < 0.01
        items = (rng.random(count) ** 3 * 50_000).astype(np.int32)
        columns = {
            "score": rng.standard_normal(count) + 1.5 * labels,
            "label": labels.astype(np.int8),
            "item": items,
        }
        pq.write_table(pa.table(columns), folder / f"{part:05d}.parquet", row_group_size=1_000_000)


def session() -> Any:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.ui.port": "0",
    }
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("calibrank benchmark")
        .config(map=settings)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stages(spark: Any) -> list[dict[str, Any]]:
    """All stages so far, from Spark's own REST interface."""
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    with urllib.request.urlopen(address) as reply:  # noqa: S310  (our own session)
        return [stage for stage in json.load(reply) if stage["status"] == "COMPLETE"]


def shuffled(spark: Any, work: Callable[[], object]) -> tuple[int, int, int]:
    """Bytes written to shuffles, bytes sent to the driver, and tasks, by a piece of work."""
    before = {stage["stageId"] for stage in stages(spark)}
    work()
    time.sleep(1)  # the interface lags behind
    new = [stage for stage in stages(spark) if stage["stageId"] not in before]
    moved, sent, tasks = (
        sum(stage[name] for stage in new)
        for name in ("shuffleWriteBytes", "resultSize", "numTasks")
    )
    return moved, sent, tasks


def memory() -> float:
    """Resident memory of the Python driver in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


def measure(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each job; turn by turn, so that noise meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: min(seconds) for name, seconds in times.items()}


def report(what: str, seconds: float, scan: float, rows: int, limit: float | None = 3) -> None:
    ratio = seconds / scan
    met = limit is None or ratio <= limit
    if limit is not None:
        results.append(met)
    bound = "" if limit is None else f" (at most {limit:g})"
    verdict = "    " if limit is None else "ok  " if met else "MISS"
    print(
        f"{verdict} {what}: {seconds:.2f} s, {rows / seconds / 1e6:.1f} million rows/s, {ratio:.2f} scans{bound}"
    )


def run(spark: Any, folder: Path, rows: int, repeats: int) -> None:
    frame = spark.read.parquet(str(folder))
    summary = engine.summarize(frame)
    gaussian, isotonic = cr.Gaussian().fit_summary(summary), cr.Isotonic().fit_summary(summary)
    loaded = memory()

    def apply(fitted: cr.CalibrationMap) -> Callable[[], object]:
        return lambda: engine.transform(fitted, frame).select(F.sum("probability")).collect()

    jobs: dict[str, Callable[[], object]] = {
        "scan": lambda: frame.select(F.avg("score")).collect(),
        GROUPS: lambda: (
            frame.groupBy(F.floor(F.col("score") * 3000.0))
            .agg(F.count("*"), F.sum("score"))
            .toArrow()
        ),
        "summary": lambda: engine.summarize(frame),
        "apply Gaussian": apply(gaussian),
        f"apply Isotonic ({len(isotonic.to_dict()['map']['values'])} steps)": apply(isotonic),
        "evaluate": lambda: engine.evaluate(engine.transform(gaussian, frame)),
    }
    times = measure(jobs, repeats)
    scan = times.pop("scan")
    print(f"{rows:.0e} rows in {len(list(folder.iterdir()))} files")
    report("scan", scan, scan, rows, None)
    for name, seconds in times.items():
        report(name, seconds, scan, rows, 3 if name.startswith("apply") else None)
    summary_scans = times["summary"] / scan
    print(
        f"summary: aim of 3 scans {'met' if summary_scans <= 3 else 'MISSED'}, not gated", end="; "
    )
    print(f"{times['summary'] / times[GROUPS]:.2f} of {GROUPS}")
    moved, sent, tasks = shuffled(spark, lambda: engine.summarize(frame))
    print(
        f"summary: {len(summary):,} bins, {tasks} tasks, shuffled {moved / 1e3:,.0f} kB, to driver {sent / 1e3:,.0f} kB"
    )
    print(f"driver: {memory():.0f} MB of Python ({memory() - loaded:+.0f} since the first summary)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--report-only", action="store_true", help="exit 0 whatever the ratios")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(int(options.rows), Path(folder))
        spark = session()
        run(spark, Path(folder), int(options.rows), options.repeats)
        spark.stop()
    sys.exit(0 if options.report_only or all(results) else 1)


if __name__ == "__main__":
    main()
