"""Runs tests against many mutants in one process each, forked after imports and collection.

`Trials` is a pytest plugin. It first runs all tests in a fork that records which of them run which
lines. Then each mutant gets a fork, in which the functions of the changed file get their new code,
and which runs the tests of the changed lines until one fails.
"""

import gc
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest

# Tests that take more seconds are those of coverage in many simulated worlds: others fail first.
LONGEST = 2.0
# Tests that take less come first, whatever their file.
QUICK = 0.1
# What runs outside of tests (imports of test files, fixtures of a session) counts for all tests.
EVERY_TEST = ""
# Of processor time, beside three times that of the tests: a busy machine must not look like a test
# that never ends.
SECONDS = 30
KILLED, SURVIVED, NOT_TRIED = 1, 0, 9
# An error of this tool, which must not count as that of a test.
BROKEN = 8


class Change(NamedTuple):
    """One changed file: its place, its new content, and the lines that changed."""

    path: Path
    content: str
    lines: tuple[str, ...]
    """A test that runs none of them cannot fail."""


class Tracer:
    """Records the tests that run each line of a folder of sources, and the time of each test.

    A fixture that tests of a file share counts for all of them.
    """

    def __init__(self, folder: Path) -> None:
        self.tests: dict[str, set[str]] = {}
        """By file and line, e.g. "metrics/metric.py:12"; a test or the path of its file."""
        self.seconds: dict[str, float] = {}
        self._folder = f"{folder}/"
        self._running = EVERY_TEST
        self._caches: list[Any] = []

    def start(self) -> None:
        """Trace this thread and those that it starts."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    @staticmethod
    def stop() -> None:
        """Trace nothing any more."""
        threading.settrace(None)  # type: ignore[arg-type]  # as documented
        sys.settrace(None)

    def fails(self, session: Any) -> bool:
        """Whether a test fails that mutants meet; one that was ended may fail anyhow."""
        # What one test has computed, others would not run.
        kind = type(cache(len))
        found = [each for each in gc.get_objects() if type(each) is kind]
        self._caches = [each for each in found if str(each.__module__).startswith("calibrank")]
        run = session.config.hook.pytest_runtest_protocol
        following = [*session.items[1:], None]
        for number, item in enumerate(session.items):
            run(item=item, nextitem=following[number])
            if session.testsfailed and self.seconds[item.nodeid] < LONGEST:
                return True
            session.testsfailed = 0
        return False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Note what a test runs."""
        self.start()
        for each in self._caches:
            each.cache_clear()
        self._running = item.nodeid
        begun = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - begun
        self._running = EVERY_TEST

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """End a test that takes too long to be of use."""
        signal.signal(signal.SIGPROF, _skip)
        signal.setitimer(signal.ITIMER_PROF, 1.5 * LONGEST)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)

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
        self.tests.setdefault(f"{path}:{frame.f_lineno}", set()).add(self._running)
        return self._line


def _skip(_signal: int, frame: FrameType | None) -> None:
    running = frame
    while running is not None:
        # Half an imported module would stay behind, and tests after this one fail.
        if running.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_PROF, 0.1)
            return
        running = running.f_back
    # If tracing is interrupted here, it is off: the next test starts it again.
    pytest.skip("takes too long")


class Trials:
    """A pytest plugin that runs the collected tests against changes, instead of once."""

    def __init__(
        self, folder: Path, changes: Sequence[Change], jobs: int, report: Callable[[int, int], None]
    ) -> None:
        self.tracer = Tracer(folder)
        self._changes = changes
        self._jobs = jobs
        self._report = report
        """Takes the number of a change, and its outcome."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        """Trace all tests, then try each change."""
        self.tracer.stop()
        if session.testsfailed or not self._trace(session):
            raise SystemExit("the tests must pass without a change")
        running: dict[int, int] = {}
        for number, change in enumerate(self._changes):
            if len(running) == self._jobs:
                self._await_one(running)
            running[fork(lambda change=change: self._outcome(session, change))] = number
        while running:
            self._await_one(running)
        if not self._pass_in_order(session):
            raise SystemExit("the tests must pass in the order in which changes meet them")
        return True

    def _await_one(self, running: dict[int, int]) -> None:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code == BROKEN:
            raise SystemExit("a change could not be tried")
        # A signal ended what would never have ended, or has crashed.
        self._report(running.pop(child), code if code in {SURVIVED, NOT_TRIED} else KILLED)

    def _trace(self, session: Any) -> bool:
        """Whether all tests pass; what they run is noted."""
        reading, writing = os.pipe()
        tracer = self.tracer

        def traced() -> int:
            session.config.pluginmanager.register(tracer)
            failed = tracer.fails(session)
            tracer.stop()
            tests = {line: sorted(found) for line, found in tracer.tests.items()}
            with os.fdopen(writing, "w", encoding="utf-8") as file:
                json.dump([tests, tracer.seconds], file)
            return failed

        child = fork(traced)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as file:
            text = file.read()
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            return False
        tests, tracer.seconds = json.loads(text)
        tracer.tests = {line: set(found) for line, found in tests.items()}
        return True

    def _pass_in_order(self, session: Any) -> bool:
        """Whether tests pass in another order; if not, every change would seem killed."""
        items = in_order(session.items, self.tracer.seconds, {EVERY_TEST})
        child = fork(lambda: _fails(session, items))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def _outcome(self, session: Any, change: Change) -> int:
        running = set().union(*[self.tracer.tests.get(line, set()) for line in change.lines])
        # What has run already, at imports, would keep the old code's results.
        if EVERY_TEST in running or not _put_in_place(change):
            return NOT_TRIED
        items = in_order(session.items, self.tracer.seconds, running)
        seconds = sum(self.tracer.seconds[item.nodeid] for item in items)
        signal.setitimer(signal.ITIMER_PROF, SECONDS + 3 * seconds)
        return KILLED if _fails(session, items) else SURVIVED


class Quick:
    """A pytest plugin that keeps the tests that take little time, the quickest first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the chosen tests, in order."""
        items[:] = in_order(items, self._seconds, {EVERY_TEST})


def in_order(items: Iterable[Any], seconds: dict[str, float], running: set[str]) -> list[Any]:
    """The tests that run some lines: quick ones first, then files that take least time."""
    by_file: dict[str, float] = defaultdict(float)
    found = []
    for item in items:
        file = item.nodeid.split("::")[0]
        taken = seconds.get(item.nodeid, LONGEST)
        if taken < LONGEST and running & {EVERY_TEST, file, item.nodeid}:
            found.append((taken >= QUICK, file, taken, item))
            by_file[file] += taken
    found.sort(key=lambda each: (each[0], by_file[each[1]], each[1], each[2]))
    return [item for *_, item in found]


def fork(run: Callable[[], int]) -> int:
    """The process number of a fork that ends with the status that a function returns."""
    child = os.fork()
    if child == 0:
        status = BROKEN
        try:
            status = run()
        finally:
            os._exit(status)
    return child


def _fails(session: Any, items: Sequence[Any]) -> bool:
    """Whether a test fails; those after it are not run."""
    following = [*items[1:], None]
    for number, item in enumerate(items):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following[number])
        if session.testsfailed:
            return True
    return False


def _put_in_place(change: Change) -> bool:
    """Give the functions of a file their new code; False where a fresh import is needed."""
    place = str(change.path)
    old = _codes(compile(change.path.read_text(encoding="utf-8"), place, "exec"))
    new = _codes(compile(change.content, place, "exec"))
    # Not `isinstance`, which asks objects for their class: proxies of what is gone raise.
    functions = [each for each in gc.get_objects() if type(each) is FunctionType]
    functions = [each for each in functions if each.__code__.co_filename == place]
    if not functions:
        return False
    for function in functions:
        name = function.__code__.co_qualname
        if function.__code__ not in old[name] or len(old[name]) != len(new[name]):
            return False
        code = new[name][old[name].index(function.__code__)]
        if code.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = code
    return True


def _codes(module: CodeType) -> dict[str, list[CodeType]]:
    """The code of all functions of a module, by their names."""
    found: dict[str, list[CodeType]] = defaultdict(list)
    waiting = [module]
    while waiting:
        code = waiting.pop(0)
        found[code.co_qualname].append(code)
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found
