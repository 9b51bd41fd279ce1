"""Reports of a few methods, for tests that are about something else."""

import pytest

from calibrank.registry import CALIBRATORS
from calibrank.report import methods

_FEW = {name: CALIBRATORS[name] for name in ("MinMax", "Platt", "Isotonic")}


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare three methods: the intervals of all of them take most of a report.

    Fixtures of a module or session are made before this one, and compare all.
    """
    monkeypatch.setattr(methods, "CALIBRATORS", _FEW)
