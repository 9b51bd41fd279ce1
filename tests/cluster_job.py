"""A job on a cluster of several processes: run as a script, it prints its results as JSON.

`local-cluster[2,1,1024]` starts a master and two workers with one executor process each. A process
can have only one Spark context, so this script is a process of its own, and an executor can be
killed without affecting other tests.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import calibrank as cr
from calibrank import spark as engine
from tests.spark_session import QUICK_JVM

EXECUTOR = b"CoarseGrainedExecutorBackend"


def cluster() -> Any:
    """Return a session on two executor processes."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        # Many tasks, so that one is running when its executor is killed.
        "spark.sql.files.maxPartitionBytes": "200k",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors(application: str) -> list[int]:
    """Return the process ids of this application's executors, and of no other application's."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # the process has ended meanwhile
        if EXECUTOR in command and application.encode() in command:
            found.append(int(folder.name))
    return found


def is_busy(tracker: Any) -> bool:
    """Whether some stage has both finished and running tasks."""
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None and info.numActiveTasks and info.numCompletedTasks:
            return True
    return False


def kill_one_executor_during(spark: Any, work: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of some work, and how many executors were killed while its tasks ran."""
    killed: list[int] = []
    tracker = spark.sparkContext.statusTracker()
    application = spark.sparkContext.applicationId

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not killed:
            victims = executors(application)
            if victims and is_busy(tracker):
                os.kill(victims[0], signal.SIGKILL)
                killed.append(victims[0])
            time.sleep(0.002)

    watcher = threading.Thread(target=kill)
    watcher.start()
    result = work()
    watcher.join()
    return result, len(killed)


def main(folder: str) -> None:
    spark = cluster()
    frame = spark.read.parquet(folder)
    application = spark.sparkContext.applicationId
    before = set(executors(application))

    def fit(rows: Any) -> dict[str, float]:
        return dict(engine.fit(cr.Gaussian(), rows, propensity="w").parameters)

    one_partition = frame.repartition(1).union(frame.limit(0).repartition(3))
    fitted = {"skewed": fit(frame), "one partition and three empty": fit(one_partition)}
    again, killed = kill_one_executor_during(spark, lambda: fit(frame))
    fitted["an executor killed"] = again
    after = set(executors(application))
    processes = {"before": len(before), "killed": killed, "replaced": len(before - after)}
    some_map = cr.Gaussian().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    applied = engine.transform(some_map, frame)
    total = applied.agg({"probability": "sum"}).collect()[0][0]
    result = {"fitted": fitted, "processes": processes, "applied": total}
    sys.stdout.write(json.dumps(result) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
