"""Reports of a few methods, for tests that are about something else."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from calibrank.registry import CALIBRATORS
from calibrank.report import methods

_FEW = {name: CALIBRATORS[name] for name in ("MinMax", "Platt", "Isotonic")}


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare three methods: the intervals of all of them take most of a report.

    Fixtures of a module or session are made before this one, and compare all unless they use
    `with_few_methods`.
    """
    monkeypatch.setattr(methods, "CALIBRATORS", _FEW)


@contextmanager
def with_few_methods() -> Iterator[None]:
    """Likewise for a report that is made here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "CALIBRATORS", _FEW)
        yield
