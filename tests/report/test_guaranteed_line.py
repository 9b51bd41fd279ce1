"""The guaranteed precision beside the expected one, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.report import report
from calibrank.report.lists import GRID
from tests.report.examples import data_of
from tests.report.quick import with_few_methods
from tests.report.test_page import CHROMIUM, OpenPage, playwright, set_threshold

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a map on rows that it was not fitted to."""
    world = make_world(6_000, seed=5)
    first, rest = slice(0, 3_000), slice(3_000, None)
    fitted = cr.Gaussian().fit(world.scores[first], world.preferences[first])
    path = tmp_path_factory.mktemp("page") / "report.html"
    with with_few_methods():
        made = report(fitted, world.scores[rest], world.preferences[rest], users=world.users[rest])
    made.save(path)
    return path


@pytest.fixture(scope="module")
def opened(page_file: Path) -> Iterator[OpenPage]:
    with playwright.sync_playwright() as started:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--headless"]}
        browser = started.chromium.launch(**options)
        shared = OpenPage(browser, page_file, viewport={"width": 380, "height": 900})
        yield shared
        assert shared.messages == []
        browser.close()


def promised(page_file: Path) -> list[Any]:
    found: list[Any] = data_of(page_file.read_text())["thresholds"]["guaranteed"]["10"]
    return found


def test_the_tile_says_what_is_guaranteed_at_the_slider(opened: OpenPage, page_file: Path) -> None:
    guaranteed = promised(page_file)
    certain = [at for at, value in enumerate(guaranteed) if value is not None]
    assert certain
    without = [at for at in range(len(GRID)) if at not in certain]
    set_threshold(opened.page, GRID[certain[-1]], "10")
    expected = f"at least {100 * guaranteed[certain[-1]]:g}%"
    assert opened.text("#tile-guaranteed") == expected
    set_threshold(opened.page, GRID[without[-1]], "10")
    assert opened.text("#tile-guaranteed") == "none"


def test_the_line_has_steps_and_a_gap_where_nothing_is_guaranteed(
    opened: OpenPage, page_file: Path
) -> None:
    opened.page.select_option(".slider select", "10")
    lines = opened.page.eval_on_selector_all(
        "#tradeoff-figure path.dashed", "nodes => nodes.map((node) => node.getAttribute('d'))"
    )
    known = np.array([value is not None for value in promised(page_file)])
    runs = np.split(known, np.flatnonzero(np.diff(known)) + 1)
    assert len(lines) == sum(1 for run in runs if run[0] and len(run) > 1)
    numbers = [float(number) for number in re.findall(r"[\d.]+", lines[0])]
    places = np.array(numbers).reshape(-1, 2)
    # Each part is horizontal or vertical.
    moved = np.abs(np.diff(places, axis=0)) > 1e-9
    assert not moved.all(axis=1).any()
    assert moved.any()
    assert "dashed line is the precision that is guaranteed" in opened.text("#tradeoff-figure")


def test_the_numbers_of_the_chart_have_the_guarantee(opened: OpenPage) -> None:
    opened.page.click("#tradeoff-figure summary")
    # The table is made when the browser has noticed that it was opened.
    opened.page.wait_for_selector("#tradeoff-figure th[scope=col]")
    headings = opened.page.eval_on_selector_all(
        "#tradeoff-figure th[scope=col]", "nodes => nodes.map((node) => node.textContent)"
    )
    assert "guaranteed precision" in headings
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 380
