"""Which tests run which lines, so that a mutant meets only the tests that run its line.

`Tracer` and `Selection` are pytest plugins.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

# Tests that take more seconds are those of coverage in many simulated worlds: others fail first.
LONGEST = 2.0
# What runs outside of tests (imports of test files, fixtures of a session) counts for all tests.
EVERY_TEST = ""


class Tracer:
    """Records the tests that run each line of a folder of sources, and the time of each test.

    A fixture that tests of a file share counts for all of them.
    """

    def __init__(self, folder: Path) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)
        """By file and line, e.g. "metrics/metric.py:12"; a test or the path of its file."""
        self.seconds: dict[str, float] = {}
        self._folder = f"{folder}/"
        self._running = EVERY_TEST

    def start(self) -> None:
        """Trace this thread and those that it starts."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Note what a test runs."""
        self._running = item.nodeid
        begun = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - begun
        self._running = EVERY_TEST

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Note what a fixture runs: only the first test that needs it would seem to."""
        before = self._running
        if fixturedef.scope in {"class", "module"}:
            self._running = before.split("::")[0]
        elif fixturedef.scope != "function":
            self._running = EVERY_TEST
        yield
        self._running = before

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        return self._line(frame, event, argument)

    def _line(self, frame: FrameType, _event: str, _argument: object) -> Any:
        path = frame.f_code.co_filename[len(self._folder) :]
        self.tests[f"{path}:{frame.f_lineno}"].add(self._running)
        return self._line


class Selection:
    """Runs the tests that were recorded for some lines, files that take least time first."""

    def __init__(self, tests: set[str], seconds: dict[str, float]) -> None:
        self._seconds: dict[str, float] = {}
        by_file: dict[str, float] = defaultdict(float)
        for test, taken in seconds.items():
            if taken < LONGEST and tests & {EVERY_TEST, test.split("::")[0], test}:
                self._seconds[test] = taken
                by_file[test.split("::")[0]] += taken
        self.files = sorted(by_file, key=lambda file: by_file[file])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the chosen tests."""
        items[:] = [item for item in items if item.nodeid in self._seconds]
