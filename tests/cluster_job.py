"""Work for a real cluster of processes: run as a script, prints what came out as JSON.

`local-cluster[2,1,1024]` starts a master, two workers and an executor process each. A Spark context is one a process,
so the cluster has a process of its own, and an executor may be killed without harm to other tests.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import calibrank as cr
from calibrank import spark as engine

EXECUTOR = b"CoarseGrainedExecutorBackend"


def cluster() -> Any:
    """A session on two executor processes."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.sql.files.maxPartitionBytes": "200k",  # many tasks, so that one is running when its executor dies
    }
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors(application: str) -> list[int]:
    """The processes of this application's executors, and of no other's."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
        except OSError:
            continue  # it ended while we looked
        if EXECUTOR in command and application.encode() in command:
            found.append(int(folder.name))
    return found


def kill_one_while(spark: Any, work: Any) -> tuple[Any, int]:
    """The work's result, and how many executors died while tasks ran."""
    killed: list[int] = []
    tracker, application = spark.sparkContext.statusTracker(), spark.sparkContext.applicationId

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not killed:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            busy = any(
                stage is not None and stage.numActiveTasks and stage.numCompletedTasks
                for stage in stages
            )
            victims = executors(application)
            if busy and victims:
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
    before = set(executors(spark.sparkContext.applicationId))
    fitted = {"skewed": engine.fit(cr.Gaussian(), frame, propensity="w").parameters}
    everything = frame.repartition(1).union(frame.limit(0).repartition(3))
    fitted["one partition and three empty"] = engine.fit(
        cr.Gaussian(), everything, propensity="w"
    ).parameters
    again, killed = kill_one_while(
        spark, lambda: engine.fit(cr.Gaussian(), frame, propensity="w").parameters
    )
    fitted["an executor killed"] = again
    late = set(executors(spark.sparkContext.applicationId))
    processes = {"before": len(before), "killed": killed, "replaced": len(before - late)}
    applied = engine.transform(cr.Gaussian().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]), frame)
    total = applied.agg({"probability": "sum"}).collect()[0][0]
    sys.stdout.write(
        json.dumps({"fitted": fitted, "processes": processes, "applied": total}) + "\n"
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
