"""Test configuration: which tests are fast, and one Spark session, in one worker."""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

# Matrices are tiny here: threads of OpenBLAS would only compete with each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# Importing it needs Haystack, which only the group `pipelines` installs. It has no examples.
collect_ignore = [
    "src/calibrank/adapters/_haystack.py",
    "src/calibrank/summary/_count_kernel.py",  # needs triton, which comes with torch for CUDA
]

# What `--fast` leaves out: tests that start processes, Spark, a browser or a training run, and
# those that repeat a fit hundreds of times to see that its intervals cover the truth.
SLOW = (
    "src/calibrank/report/html_report.py",
    "src/calibrank/spark/",
    "tests/adapters/",
    "tests/anchoring/",
    "tests/curves/test_auto.py",
    "tests/terms/test_group.py",
    "tests/terms/test_joint.py",
    "tests/curves/test_spline.py",
    "tests/curves/test_truth.py",
    "tests/cli/",
    "tests/docs/",
    "tests/experiment/",
    "tests/golden/",
    "tests/laws/test_base_rate_range.py",
    "tests/laws/test_composition.py",
    "tests/laws/test_exports.py",
    "tests/laws/test_spark.py",
    "tests/laws/test_tensors.py",
    "tests/maps/targets/",
    "tests/metrics/test_clustered_bootstrap.py",
    "tests/metrics/test_panel.py",
    "tests/models/",
    "tests/monitor/test_e_process.py",
    "tests/reference/",
    "tests/report/",
    "tests/search/",
    "tests/spark/",
    "tests/test_build.py",
    "tests/test_decisions.py",
    "tests/test_package.py",
    "tests/test_sklearn.py",
    "tests/test_checks.py",
)


# The groups that take longest are started first, so that no worker is left with one at the end.
SLOWEST_FIRST = (
    "spark",
    "tests/docs/test_readme.py",
    "tests/laws/test_calibrators.py",
    "tests/report/test_page.py",
    "tests/anchoring/test_anchor.py",
    "tests/cli/test_diagnose.py",
    "tests/experiment/test_experiment.py",
    "tests/laws/test_exports.py",
    "tests/docs/test_notebooks.py",
    "tests/report/test_report.py",
    "src/calibrank/report/html_report.py",
)
_START_ORDER = {group: position for position, group in enumerate(SLOWEST_FIRST)}


def pytest_addoption(parser: Any) -> None:
    """Options for parts of the tests."""
    parser.addoption("--fast", action="store_true", help="run only the fast half of the tests")
    parser.addoption(
        "--core-only", action="store_true", help="skip what needs a package that is not installed"
    )


# Not `--dist loadgroup`: xdist 3.8 does not see the groups with pytest 9.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Give each group of tests to one worker, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  (only with several workers)

    class Groups(LoadScopeScheduling):  # type: ignore[misc]  # without types
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Put slow groups first, and leave out what is not to be run."""
    # Sorting is stable: all other groups follow in the order of their files.
    items.sort(key=lambda item: _START_ORDER.get(_group(item.nodeid), len(_START_ORDER)))
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out and _has_gpu():
        left_out = []
    if config.getoption("--fast"):
        left_out += [item for item in items if _is_slow(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    unwanted = set(left_out)
    items[:] = [item for item in items if item not in unwanted]


def _group(nodeid: str) -> str:
    """One Spark session serves all tests; the tests of a file share its fixtures."""
    return "spark" if "spark" in nodeid.lower() else nodeid.split("::", maxsplit=1)[0]


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415  (the tests that are asked about have imported it)

    return bool(torch.cuda.is_available())


def _is_slow(nodeid: str) -> bool:
    return nodeid.startswith(SLOW) or "spark" in nodeid.lower()


def pytest_ignore_collect(collection_path: Any, config: Any) -> bool | None:
    """With `--fast`, do not even import slow test modules."""
    if not config.getoption("--fast"):
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_slow = path.startswith(SLOW) or f"{path}/" in SLOW
    return True if is_slow else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: Any) -> Iterator[Any]:
    """With `--core-only`, a test module that cannot be imported for want of an extra is skipped."""
    report = yield
    if not collector.config.getoption("--core-only") or not report.failed:
        return report
    missing = _MISSING.search(str(report.longrepr))
    if missing:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), None, f"Skipped: {missing[0]}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[Any]:
    """Likewise for a test that imports such a package itself."""
    report = yield
    if not item.config.getoption("--core-only") or not report.failed:
        return report
    missing = _MISSING.search(str(report.longrepr))
    if missing:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), None, f"Skipped: {missing[0]}")
    return report


# How a missing package shows: Python's own error, or ours.
_MISSING = re.compile(r"No module named '(?!calibrank|tests)\w+|\w+ is not installed\. Run: pip")


def pytest_runtest_setup(item: Any) -> None:
    """Start Spark before a docstring example of `calibrank.spark`, or skip it without Spark."""
    if isinstance(item, pytest.DoctestItem) and item.name.startswith("calibrank.spark"):
        from tests.spark_session import session  # noqa: PLC0415  (only these need Spark)

        session()
