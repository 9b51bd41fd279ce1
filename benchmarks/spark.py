"""Spark: summarize, apply and evaluate against a `select(avg(score))` scan of the same table.

`python benchmarks/spark.py` uses 1e7 rows on two cores; `--rows 1e8` needs 2.5 GB of disk, and
`--master local-cluster[2,1,1024]` runs executors as processes of their own. Prints ratios measured
in the same run, what was shuffled and what the driver holds, and exits with 1 if a limit is missed:
3 scans to apply a curve, 6 to fit terms, 4 to apply a map with terms. The aim for a summary is 3
scans, too. It is printed without failing, next to Spark's own `groupBy` by a simple key into about
as many groups: that shows how much there is left to gain. Times with terms are also printed as
multiples of a scan of the columns that they read, which hashes texts: Spark makes a new text in
every row. The limits are for scans of the score alone.

`--accuracy` instead compares a joint fit on samples of two sizes with one on all rows.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import calibrank as cr
from calibrank import spark as engine

FILE_ROWS = 2_500_000
MOST_SCANS = 3
MOST_SCANS_OF_FITS = 6
MOST_SCANS_WITH_TERMS = 4
LEVELS = 1_000
GROUP_BY = "Spark's own groupBy"
SHOPS = pa.array([f"shop {number}" for number in range(LEVELS)])
LEVEL = cr.Gaussian() + cr.Level("shop")
LEVEL_OF_IDS = cr.Gaussian() + cr.Level("shop_id")
BOTH = LEVEL + cr.Smooth("price")
BOTH_OF_IDS = LEVEL_OF_IDS + cr.Smooth("price")
SAMPLES = (100_000, 1_000_000)
results: list[bool] = []

TEXT_LEVEL = "fit Level of text (with terms)"
LEVEL_OF_NUMBERS = "fit Level of whole numbers (with terms)"
JOIN_TEXT = "join text (with terms)"
JOIN_NUMBERS = "join whole numbers (with terms)"
READS = {
    TEXT_LEVEL: ("score", "label", "shop"),
    LEVEL_OF_NUMBERS: ("score", "label", "shop_id"),
    JOIN_TEXT: ("score", "price", "shop"),
    JOIN_NUMBERS: ("score", "price", "shop_id"),
}
LIMITS = {"apply": MOST_SCANS, "fit": MOST_SCANS_OF_FITS, "join": MOST_SCANS_WITH_TERMS}

Job = Callable[[], object]


def write(rows: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    for file, start in enumerate(range(0, rows, FILE_ROWS)):
        count = min(FILE_ROWS, rows - start)
        prices = np.exp(rng.standard_normal(count)).astype(np.float32)
        items = (rng.random(count) ** 3 * 50_000).astype(np.int32)
        shops = (rng.random(count) ** 3 * LEVELS).astype(np.int32)
        log_odds = -4.6 + 0.5 * np.sin(shops) - 0.3 * np.log(prices)
        labels = rng.random(count) < 1 / (1 + np.exp(-log_odds))
        columns = {
            "score": rng.standard_normal(count) + 1.5 * labels,
            "label": labels.astype(np.int8),
            "item": items,
            "shop": pa.DictionaryArray.from_arrays(pa.array(shops), SHOPS),
            "shop_id": shops,
            "price": prices,
        }
        path = folder / f"{file:05d}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=1_000_000)


def session(master: str) -> Any:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.ui.port": "0",
    }
    builder = SparkSession.builder.master(master).appName("calibrank benchmark")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stages(spark: Any) -> list[dict[str, Any]]:
    """Return all completed stages, from Spark's REST interface."""
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    with urllib.request.urlopen(address) as reply:  # noqa: S310  (our own session)
        return [stage for stage in json.load(reply) if stage["status"] == "COMPLETE"]


class Traffic(NamedTuple):
    """What a job moved."""

    shuffled: int
    to_driver: int
    tasks: int
    cpu: float
    """Seconds of processor time of the tasks: other programs that run meanwhile hardly matter."""


def traffic_of(spark: Any, job: Job) -> Traffic:
    """Run a job, and return the bytes it shuffled and sent to the driver, and its tasks."""
    before = {stage["stageId"] for stage in stages(spark)}
    job()
    time.sleep(1)  # the interface lags behind
    new = [stage for stage in stages(spark) if stage["stageId"] not in before]
    return Traffic(
        sum(stage["shuffleWriteBytes"] for stage in new),
        sum(stage["resultSize"] for stage in new),
        sum(stage["numTasks"] for stage in new),
        sum(stage["executorCpuTime"] for stage in new) / 1e9,
    )


def memory() -> float:
    """Return the resident memory of the Python driver, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


class Cost(NamedTuple):
    """The shortest time of a job, and the least processor time of its tasks, in seconds."""

    wall: float
    cpu: float


def measure(spark: Any, jobs: dict[str, Job], repeats: int) -> dict[str, Cost]:
    """Return the cost of each job; they run in turn, so that noise affects all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}

    def timed(name: str) -> None:
        start = time.perf_counter()
        jobs[name]()
        times[name].append(time.perf_counter() - start)

    for _ in range(repeats):
        for name in jobs:
            cpu[name].append(traffic_of(spark, partial(timed, name)).cpu)
    return {name: Cost(min(times[name]), min(cpu[name])) for name in jobs}


def report(
    what: str, cost: Cost, scan: Cost, rows: int, most: int | None, own: Cost | None
) -> None:
    """Print a time and its ratio to a scan, which must be within its limit if it has one.

    `own` is the cost of a scan of the columns that the job reads.
    """
    seconds = cost.wall
    ratio = seconds / scan.wall
    speed = rows / seconds / 1e6
    verdict = "    "
    bound = ""
    if most is not None:
        met = ratio <= most
        results.append(met)
        verdict = "ok  " if met else "MISS"
        bound = f" (at most {most})"
    if own is not None:
        bound += f", {seconds / own.wall:.2f} scans of its columns"
    print(
        f"{verdict} {what}: {seconds:.2f} s, {speed:.1f} million rows/s, {ratio:.2f} scans{bound}; "
        f"processor time of tasks {cost.cpu:.2f} s, {cost.cpu / scan.cpu:.2f} scans"
    )


def scan_of(columns: tuple[str, ...]) -> str:
    return f"scan of {', '.join(columns)} (with terms)"


def read(frame: Any, columns: tuple[str, ...]) -> object:
    """Read columns, and a hash of texts: a sum needs numbers."""
    numbers = [F.xxhash64(name) if name == "shop" else F.col(name) for name in columns]
    return frame.select(F.sum(sum(numbers, F.lit(0.0)))).collect()


def make_jobs(
    frame: Any, gaussian: cr.CalibrationMap, isotonic: cr.CalibrationMap
) -> dict[str, Job]:
    def apply(fitted: cr.CalibrationMap) -> Job:
        return lambda: engine.transform(fitted, frame).select(F.sum("probability")).collect()

    def group() -> object:
        groups = frame.groupBy(F.floor(F.col("score") * 3000.0))
        return groups.agg(F.count("*"), F.sum("score")).toArrow()

    steps = len(isotonic.curve.values)
    return {
        "scan": lambda: frame.select(F.avg("score")).collect(),
        **{scan_of(columns): partial(read, frame, columns) for columns in READS.values()},
        GROUP_BY: group,
        "summary": lambda: engine.summarize(frame),
        "apply Gaussian": apply(gaussian),
        f"apply Isotonic ({steps} steps)": apply(isotonic),
        TEXT_LEVEL: lambda: engine.fit(LEVEL, frame),
        LEVEL_OF_NUMBERS: lambda: engine.fit(LEVEL_OF_IDS, frame),
        "fit Level and Smooth, 1,000,000 sampled rows (with terms)": lambda: engine.fit(
            BOTH, frame
        ),
        JOIN_TEXT: apply(engine.fit(BOTH, frame)),
        JOIN_NUMBERS: apply(engine.fit(BOTH_OF_IDS, frame)),
        "evaluate": lambda: engine.evaluate(engine.transform(gaussian, frame)),
    }


def run(spark: Any, folder: Path, rows: int, repeats: int, only: str) -> None:
    frame = spark.read.parquet(str(folder))
    summary = engine.summarize(frame)
    gaussian = cr.Gaussian().fit_summary(summary)
    isotonic = cr.Isotonic().fit_summary(summary)
    before = memory()
    jobs = make_jobs(frame, gaussian, isotonic)
    jobs = {name: job for name, job in jobs.items() if name == "scan" or only in name}
    times = measure(spark, jobs, repeats)
    scan = times["scan"]
    print(f"{rows:.0e} rows in {len(list(folder.iterdir()))} files")
    for name, cost in times.items():
        most = next((limit for start, limit in LIMITS.items() if name.startswith(start)), None)
        own = times.get(scan_of(READS[name])) if name in READS else None
        report(name, cost, scan, rows, most, own)
    if "summary" not in times:
        return
    met = "met" if times["summary"].wall <= MOST_SCANS * scan.wall else "MISSED"
    ratio = times["summary"].wall / times[GROUP_BY].wall
    print(f"summary: aim of {MOST_SCANS} scans {met}, not gated; {ratio:.2f} of {GROUP_BY}")
    traffic = traffic_of(spark, lambda: engine.summarize(frame))
    print(
        f"summary: {len(summary):,} bins, {traffic.tasks} tasks, "
        f"shuffled {traffic.shuffled / 1e3:,.0f} kB, to driver {traffic.to_driver / 1e3:,.0f} kB"
    )
    after = memory()
    print(f"driver: {after:.0f} MB of Python ({after - before:+.0f} since the first summary)")


def compare_samples(spark: Any, folder: Path, rows: int) -> None:
    """Print how far the predictions of fits on samples are from those of a fit on all rows."""
    frame = spark.read.parquet(str(folder))
    some = frame.limit(100_000).toArrow()
    columns = {name: some[name].to_numpy() for name in ("score", "shop", "price")}

    def log_odds(sample_rows: int) -> Any:
        fitted = engine.fit(BOTH, frame, sample_rows=sample_rows)
        print(f"fitted on {fitted.record.rows:,} of {rows:,} rows")
        return fitted.log_odds(columns["score"], columns)

    exact = log_odds(rows)
    for sample in SAMPLES:
        error = log_odds(sample) - exact
        ends = np.quantile(np.abs(error), [0.5, 0.95])
        print(
            f"sample of {sample:,}: log odds off by {np.sqrt(np.mean(error**2)):.4f} (root mean "
            f"square), half by less than {ends[0]:.4f}, 95% by less than {ends[1]:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--report-only", action="store_true", help="exit with 0 in any case")
    parser.add_argument("--only", default="", help="time only jobs whose name has this text")
    parser.add_argument("--accuracy", action="store_true", help="compare sizes of samples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(int(options.rows), Path(folder))
        spark = session(options.master)
        if options.accuracy:
            compare_samples(spark, Path(folder), int(options.rows))
        else:
            run(spark, Path(folder), int(options.rows), options.repeats, options.only)
        spark.stop()
    sys.exit(0 if options.report_only or all(results) else 1)


if __name__ == "__main__":
    main()
