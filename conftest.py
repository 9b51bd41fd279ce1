"""Tests of Spark share one session, and one worker where there are several: starting it takes the longest."""

import os
from typing import Any

import pytest

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # matrices are tiny: threads only get in each other's way


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep what needs Spark together."""
    for item in items:
        if "spark" in item.nodeid.lower() or "als" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_runtest_setup(item: Any) -> None:
    """Start the shared session before an example of the Spark engine runs, or skip it where Spark cannot run."""
    if isinstance(item, pytest.DoctestItem) and item.name.startswith("calibrank.spark"):
        from tests.spark_session import session  # noqa: PLC0415  (only these need Spark)

        session()
