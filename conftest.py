"""Doctests of the Spark engine use the tests' own session, and are skipped where Spark cannot run."""

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the shared session before an example of the Spark engine runs."""
    if isinstance(item, pytest.DoctestItem) and item.name.startswith("calibrank.spark"):
        from tests.spark_session import session  # noqa: PLC0415  (only these need Spark)

        session()
