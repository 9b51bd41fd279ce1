"""One small Spark session per test process, shared by all tests that need it."""

import os
import shutil
import warnings
from functools import cache
from typing import Any

import pytest

# The optimizing JIT compiler and parallel garbage collection take longer than the tests that they
# would speed up.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def missing() -> str | None:
    """Return why Spark cannot run here, or None if it can."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java, which is not installed"
    return None


def session() -> Any:
    """Return the session, or skip the test with the reason why there is none."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "spark")
    if "spark" not in name.lower():
        raise AssertionError("name a test that uses Spark after it: one worker has the session")
    return _started()


@cache
def _started() -> Any:
    pyspark = pytest.importorskip("pyspark.sql")
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
    }
    builder = pyspark.SparkSession.builder.master("local[2]").appName("calibrank tests")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
