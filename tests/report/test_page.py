"""The page in a real browser: controls show the right numbers and nothing else runs."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.report import report
from tests.report.examples import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def with_hostile_names(numbers: np.ndarray, prefix: str) -> np.ndarray:
    """Names for numbers, the first ones hostile."""
    names = [
        HOSTILE[number] if number < len(HOSTILE) else f"{prefix}-{number}" for number in numbers
    ]
    return np.array(names)


class Example:
    """A table, its map, and the page made from them."""

    def __init__(self, folder: Path) -> None:
        world = make_world(9_000, seed=5)
        self.users = with_hostile_names(world.users, "user")
        self.items = with_hostile_names(world.items, "item")
        self.scores = world.scores
        self.labels = world.preferences
        self.fitted = cr.Gaussian().fit(self.scores, self.labels)
        self.probabilities = self.fitted.predict(self.scores)
        devices = np.array(HOSTILE)[np.arange(len(world)) % len(HOSTILE)]
        made = report(
            self.fitted,
            self.scores,
            self.labels,
            users=self.users,
            items=self.items,
            columns={"device": devices},
            name=HOSTILE[1],
        )
        self.headline = made.headline
        self.path = folder / "report.html"
        made.save(self.path)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--headless"]
        )
        yield launched
        launched.close()


class OpenPage:
    """A page, with its console messages, errors and dialogs, and the requests it made."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.page = browser.new_page(**settings)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def _dismiss(self, dialog: Any) -> None:
        self.messages.append(dialog.message)
        dialog.dismiss()

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))


@pytest.fixture(scope="module")
def opened(browser: Any, example: Example) -> Iterator[OpenPage]:
    """One page for all tests; in the end it must have logged nothing and requested nothing."""
    shared = OpenPage(browser, example.path, viewport={"width": 1280, "height": 900})
    yield shared
    assert shared.messages == []
    assert [url.split("#")[0] for url in shared.requests] == [example.path.as_uri()]


def test_the_headline_is_the_sentence_of_the_report(opened: OpenPage, example: Example) -> None:
    assert f"{opened.text('#average-error')} {opened.text('#verdict')}" == example.headline
    opened.page.click("#headline button[data-value='0.1']")
    assert "items given 10%" in opened.text("#sentence")


def test_the_page_writes_percentages_without_a_space(opened: OpenPage) -> None:
    text = opened.text("main")
    assert re.search(r"\d%", text)
    assert not re.search(r"\d\s%", text)


def test_hostile_names_are_shown_as_they_are(opened: OpenPage) -> None:
    page = opened.page
    assert page.locator("script").count() == 2
    assert page.locator("img, iframe, object, embed, form").count() == 0
    assert opened.text("#top bdi") == HOSTILE[1]
    shown = page.locator("#segments .name").all_text_contents()
    assert set(HOSTILE) <= set(shown)


def test_the_reliability_diagram_follows_its_controls(opened: OpenPage) -> None:
    page = opened.page
    linear = page.inner_html("#reliability-figure .holder")
    page.click("#reliability .switches button[data-value='logit']")
    logit = page.inner_html("#reliability-figure .holder")
    assert logit != linear
    page.click("#reliability .switches button[data-value='width']")
    assert page.inner_html("#reliability-figure .holder") != logit
    page.locator("#reliability-figure svg").scroll_into_view_if_needed()
    box = page.locator("#reliability-figure svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    assert "rows" in opened.text("#tooltip")
    page.keyboard.press("Escape")
    assert not page.is_visible("#tooltip")


def test_metrics_explain_themselves(opened: OpenPage) -> None:
    row = opened.text("#metrics tr[data-metric='Brier']")
    assert cr.Brier().explanation in row
    assert "Lower is better." in row


def test_every_control_can_be_reached_by_keyboard(opened: OpenPage) -> None:
    page = opened.page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(140):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "SUMMARY", "A"} <= reached


def test_the_theme_follows_the_system_and_the_button(opened: OpenPage) -> None:
    page = opened.page
    background = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) != light
    page.click("#theme")
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="light", media="print")
    assert not page.is_visible("#theme")
    page.emulate_media(media="screen")


@pytest.mark.parametrize("width", [360, 380, 1280])
def test_the_page_does_not_scroll_sideways(browser: Any, example: Example, width: int) -> None:
    narrow = OpenPage(browser, example.path, viewport={"width": width, "height": 800})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= width
    # Tables need no scrolling of their own either: none is cut.
    narrow.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert narrow.page.query_selector_all("#metrics .metrics")
    for table in narrow.page.query_selector_all("table:not(.numbers table)"):
        box = table.bounding_box()
        assert box["x"] + box["width"] <= width
    overflow = "(node) => node.scrollWidth - node.clientWidth"
    for part in narrow.page.query_selector_all(".segments .scroll"):
        assert part.evaluate(overflow) <= 0
    narrow.page.close()


def accessibility_violations(page: Any) -> list[tuple[str, str, str]]:
    """What axe finds serious or critical, with every part of the page opened."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    script = """document.querySelectorAll("details").forEach((details) => {
        details.open = true;
        if (details.fillIn) details.fillIn();
    })"""
    page.evaluate(script)
    found = []
    for violation in axe.Axe().run(page).response["violations"]:
        if violation["impact"] in ("serious", "critical"):
            node = violation["nodes"][0]
            found.append((violation["id"], node["html"], node["failureSummary"]))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(browser: Any, example: Example, scheme: str) -> None:
    fresh = OpenPage(
        browser, example.path, color_scheme=scheme, viewport={"width": 1280, "height": 900}
    )
    assert accessibility_violations(fresh.page) == []
    fresh.page.close()


def test_a_page_without_users_says_what_to_add(
    browser: Any, example: Example, tmp_path: Path
) -> None:
    path = tmp_path / "without_users.html"
    report(example.fitted, example.scores[:2000], example.labels[:2000]).save(path)
    opened = OpenPage(browser, path)
    assert "a column of users" in opened.text("#headline")
    assert opened.messages == []
    opened.page.close()


def test_the_page_of_a_map_with_terms_says_what_its_line_is(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores, age = rng.normal(size=(2, 3_000))
    device = rng.choice(HOSTILE, 3_000)
    labels = rng.random(3_000) < 1 / (1 + np.exp(1 - scores - (device == HOSTILE[0]) - age))
    columns = {"device": device, "age": age}
    fitted = (cr.Platt() + cr.Level("device")).fit(scores, labels, columns)
    report(fitted, scores, labels, columns).save(tmp_path / "report.html")
    page = OpenPage(browser, tmp_path / "report.html")
    caption = page.text("#map-figure figcaption")
    assert "the line is the average map" in caption
    # It names terms, and not to fit them on this table.
    assert page.text("#terms") == "Smooth('age')"
    assert "not on this one" in page.text("#segment-test")
    assert len(page.page.query_selector_all("#facts li")) <= 4
    assert page.messages == []
    assert accessibility_violations(page.page) == []
    page.page.close()
