"""Packages that `make test` does not install, because they are large and few tests need them."""

from typing import Any

import pytest


def pipeline_package(name: str) -> Any:
    """A package of the group `pipelines`; without it the test is skipped with the remedy."""
    remedy = "pip install --constraint constraints.txt --group pipelines"
    return pytest.importorskip(name, reason=f"{name} is not installed. Run: {remedy}")
