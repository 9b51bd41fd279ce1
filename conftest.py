"""Test configuration: one Spark session, in one worker, because starting it is slow."""

import os
from typing import Any

import pytest

# Matrices are tiny here: threads of OpenBLAS would only compete with each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Run all tests that need Spark in the same worker."""
    for item in items:
        uses_spark = "spark" in item.nodeid.lower()
        uses_als = "als" in getattr(item, "fixturenames", ())
        if uses_spark or uses_als:
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_runtest_setup(item: Any) -> None:
    """Start Spark before a docstring example of `calibrank.spark`, or skip it without Spark."""
    if isinstance(item, pytest.DoctestItem) and item.name.startswith("calibrank.spark"):
        from tests.spark_session import session  # noqa: PLC0415  (only these need Spark)

        session()
