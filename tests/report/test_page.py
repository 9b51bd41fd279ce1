"""The page in a real browser: controls show the right numbers and nothing else runs."""

import json
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
from calibrank.report.lists import GRID
from tests.cli.running import run_here
from tests.report.examples import HOSTILE
from tests.report.quick import with_few_methods
from tests.search_world import make_run

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
    with with_few_methods():
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


def set_threshold(page: Any, probability: float, length: str) -> None:
    page.select_option(".slider select", length)
    (index,) = np.flatnonzero(probability == GRID)
    script = """(node, index) => {
        node.value = index;
        node.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    page.eval_on_selector("#slider", script, int(index))


def number(text: str) -> float:
    return float(re.sub(r"[^0-9.\-]", "", text))


def test_the_headline_is_the_sentence_of_the_report(opened: OpenPage, example: Example) -> None:
    assert f"{opened.text('#average-error')} {opened.text('#verdict')}" == example.headline
    opened.page.click("#headline button[data-value='0.1']")
    assert "items given 10%" in opened.text("#sentence")


def test_the_page_writes_percentages_without_a_space(opened: OpenPage) -> None:
    text = opened.text("main")
    assert re.search(r"\d%", text)
    assert not re.search(r"\d\s%", text)


@pytest.mark.parametrize("length", ["3", "10", "all"])
@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.6])
def test_the_slider_shows_what_python_counts(
    opened: OpenPage, example: Example, threshold: float, length: str
) -> None:
    set_threshold(opened.page, threshold, length)
    limit = None if length == "all" else int(length)
    counts = []
    expected = 0.0
    for user in np.unique(example.users):
        own = example.probabilities[example.users == user]
        top = np.sort(own)[::-1][:limit]
        shown = top[top >= threshold]
        counts.append(len(shown))
        expected += shown.sum()
    items = sum(counts)
    users = len(counts)
    assert number(opened.text("#tile-items")) == items
    assert number(opened.text("#tile-empty")) == counts.count(0)
    precision = number(opened.text("#tile-precision"))
    assert precision == pytest.approx(100 * expected / items, abs=0.051)
    assert number(opened.text("#tile-liked")) == pytest.approx(expected / users, abs=0.00051)
    assert number(opened.text("#slider-value")) == pytest.approx(100 * threshold)
    details = opened.page.locator("#list-length-figure details")
    details.evaluate("node => { node.open = true; node.fillIn(); }")
    cells = details.locator("tbody td").all_text_contents()
    assert sum(number(cell) for cell in cells) == users
    assert number(cells[2]) == counts.count(2)


def test_searching_for_a_user_shows_that_users_list(opened: OpenPage, example: Example) -> None:
    page = opened.page
    page.fill("#search", "user-2")
    names = page.locator("#user-options option").all_text_contents()
    assert names
    assert all("user-2" in name for name in names)
    page.select_option("#user-options", label="user-20")
    own = example.users == "user-20"
    probabilities = example.probabilities[own]
    order = np.argsort(-probabilities)[:10]
    shown = page.locator("#user-detail tbody th").all_text_contents()
    assert shown == example.items[own][order].tolist()
    texts = page.locator("#user-detail td.probability").all_text_contents()
    assert [number(text) for text in texts] == pytest.approx(100 * probabilities[order], abs=0.06)
    set_threshold(page, 0.3, "10")
    hidden = (probabilities[order] < 0.3).sum()
    assert page.locator("#user-detail tr.hidden-item").count() == hidden
    page.fill("#search", "no user has this name")
    assert "0 of" in opened.text("#match-count")
    page.fill("#search", "")


def test_hostile_names_are_shown_as_they_are(opened: OpenPage) -> None:
    page = opened.page
    find = "(options, name) => options.findIndex(option => option.textContent === name)"
    for name in HOSTILE:
        page.fill("#search", name[:4])
        index = page.locator("#user-options option").evaluate_all(find, name)
        assert index >= 0, name
        page.select_option("#user-options", index=index)
        assert page.text_content("#user-detail h3 bdi") == name
    page.fill("#search", "")
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
    page.click("#reliability .thumbnail[data-method='Isotonic']")
    assert "Isotonic" in str(page.get_attribute("#reliability-figure svg", "aria-label"))
    assert page.inner_html("#reliability-figure .holder") != logit
    box = page.locator("#reliability-figure svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    assert "rows" in opened.text("#tooltip")


def test_metrics_explain_themselves_on_focus_and_sort(opened: OpenPage) -> None:
    page = opened.page
    page.locator("#methods th[data-metric='Brier'] button").focus()
    page.wait_for_selector("#tooltip", state="visible")  # the page may have to scroll there first
    assert cr.Brier().explanation in opened.text("#tooltip")
    assert "Lower is better." in opened.text("#tooltip")
    page.keyboard.press("Enter")
    texts = page.locator("#methods td[data-metric='Brier'] .value").all_text_contents()
    values = [float(text) for text in texts]
    assert values == sorted(values)
    heading = page.locator("#methods th[data-metric='Brier']")
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Escape")
    assert not page.is_visible("#tooltip")


def test_ratios_are_sorted_by_their_distance_from_one(opened: OpenPage) -> None:
    column = "[data-metric='CalibrationInTheLarge']"
    opened.page.click(f"#methods th{column} button")
    texts = opened.page.locator(f"#methods td{column} .value").all_text_contents()
    distances = np.abs(np.log([float(text) for text in texts]))
    assert (np.diff(distances) > -2e-4).all()  # the texts are rounded
    best = opened.page.locator(f"#methods td.best{column} .value").all_text_contents()
    assert texts[0] in best


def test_every_control_can_be_reached_by_keyboard(opened: OpenPage) -> None:
    page = opened.page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(140):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"slider", "search", "user-options", "theme", "SELECT", "SUMMARY", "A"} <= reached
    page.focus("#slider")
    before = opened.text("#slider-value")
    page.keyboard.press("ArrowRight")
    assert opened.text("#slider-value") != before


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
    assert narrow.page.query_selector_all("#methods .metrics")
    for table in narrow.page.query_selector_all("table:not(.numbers table)"):
        box = table.bounding_box()
        assert box["x"] + box["width"] <= width
    overflow = "(node) => node.scrollWidth - node.clientWidth"
    for part in narrow.page.query_selector_all(".segments .scroll, #users .scroll"):
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
    assert "--user" in opened.text("#thresholds")
    assert "--user" in opened.text("#users")
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
    assert f"the largest levels, device {device_names(device)}" in caption
    titles = "nodes => nodes.map((node) => node.textContent)"
    assert len(page.page.eval_on_selector_all("#map-figure path.guide title", titles)) == 6
    # It names terms, and not to fit them on this table.
    assert page.text("#terms") == "Smooth('age')"
    assert "not on this one" in page.text("#segment-test")
    assert len(page.page.query_selector_all("#facts li")) <= 4
    assert page.messages == []
    assert accessibility_violations(page.page) == []
    page.page.close()


def device_names(device: np.ndarray) -> str:
    names, counts = np.unique(device, return_counts=True)
    return ", device ".join(names[np.argsort(-counts, kind="stable")][:6])


@pytest.mark.parametrize("wanted", [0.7, 1.0])
def test_the_page_of_a_search_says_what_the_threshold_keeps(
    browser: Any, tmp_path: Path, wanted: float
) -> None:
    scores: dict[str, dict[str, float]] = {}
    grades: dict[str, dict[str, int]] = {}
    for query, document, score, grade in make_run(30, 12):
        name = HOSTILE[1] if query == "q0" else query
        scores.setdefault(name, {})[document] = score
        grades.setdefault(name, {})[document] = grade
    run, qrels = tmp_path / "run.json", tmp_path / "qrels.json"
    run.write_text(json.dumps(scores))
    qrels.write_text(json.dumps(grades))
    path = tmp_path / "page.html"
    out = tmp_path / "out.json"
    options = ["--relevant", "2", "--precision", str(wanted), "--report", path, "-o", out]
    code, _, error = run_here("search", "fit", run, qrels, *options)
    assert code == 0, error
    narrow = OpenPage(browser, path, viewport={"width": 380, "height": 800})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 380
    for table in narrow.page.query_selector_all(".scroll"):
        assert table.evaluate("(node) => node.scrollWidth - node.clientWidth") <= 0
    # A sentence that is read at a glance.
    assert len(narrow.text("#sentence")) < 60
    queries = narrow.text("#queries")
    assert HOSTILE[1] in queries
    if wanted == 1.0:
        assert narrow.text("#sentence") == "No threshold reaches a precision of 100%."
        assert queries.count("nothing") == 30
    else:
        assert "of the judged documents are relevant" in narrow.text("#sentence")
        assert "of 360 documents reach it" in narrow.text("#threshold")
        assert queries.count("nothing") < 30
    assert narrow.text("#verdict") == "The map is better than a constant."
    assert "if calibrated" in narrow.text("#metrics")
    assert 'Relevant is "grade >= 2".' in narrow.text("#population")
    assert accessibility_violations(narrow.page) == []
    assert narrow.messages == []
    narrow.page.close()
