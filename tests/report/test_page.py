"""The page in a real browser: what is clicked and typed shows the right numbers, and nothing else runs."""

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
from calibrank.report.thresholds import GRID
from tests.report.test_report import HOSTILE, result_rows

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found to open the page with")


class Setting:
    """A world, its map, and the page made of them."""

    def __init__(self, folder: Path) -> None:
        world = make_world(9_000, seed=5)
        self.users = np.array(
            [HOSTILE[u] if u < len(HOSTILE) else f"user-{u}" for u in world.users]
        )
        self.items = np.array(
            [HOSTILE[i] if i < len(HOSTILE) else f"item-{i}" for i in world.items]
        )
        self.scores, self.labels = world.scores, world.preferences
        self.fitted = cr.Gaussian().fit(self.scores, self.labels)
        self.probabilities = self.fitted.predict(self.scores)
        segments = {"device": np.array(HOSTILE)[np.arange(len(world)) % len(HOSTILE)]}
        made = report(
            self.fitted,
            self.scores,
            self.labels,
            users=self.users,
            items=self.items,
            segments=segments,
            name=HOSTILE[1],
        )
        self.headline, self.path = made.headline, folder / "report.html"
        made.save(self.path)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--headless"]
        )
        yield launched
        launched.close()


class Opened:
    """A page, and all that it said or asked for."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.page = browser.new_page(**settings)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))


@pytest.fixture(scope="module")
def opened(browser: Any, setting: Setting) -> Iterator[Opened]:
    """One page for all; whatever was done to it, it must have said nothing and asked for nothing."""
    shared = Opened(browser, setting.path, viewport={"width": 1280, "height": 900})
    yield shared
    assert shared.said == []
    assert [url.split("#")[0] for url in shared.asked] == [setting.path.as_uri()]


def slide(page: Any, at: int, length: str) -> None:
    page.select_option(".slider select", length)
    page.eval_on_selector(
        "#slider",
        "(node, at) => { node.value = at; node.dispatchEvent(new Event('input', {bubbles: true})); }",
        at,
    )


def number(text: str) -> float:
    return float(re.sub(r"[^0-9.\-]", "", text))


def test_the_headline_is_pythons(opened: Opened, setting: Setting) -> None:
    assert opened.text("#sentence").rstrip(".") == setting.headline
    opened.page.click("#headline button[data-value='0.1']")
    assert "items shown at 10 %" in opened.text("#sentence")


@pytest.mark.parametrize("length", ["3", "10", "all"])
@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.6])
def test_the_slider_shows_what_python_counts(
    opened: Opened, setting: Setting, threshold: float, length: str
) -> None:
    slide(opened.page, int(np.flatnonzero(threshold == GRID)[0]), length)
    counts, expected = [], 0.0
    for user in np.unique(setting.users):
        mine = np.sort(setting.probabilities[setting.users == user])[::-1][
            : None if length == "all" else int(length)
        ]
        counts.append((mine >= threshold).sum())
        expected += mine[mine >= threshold].sum()
    shown, people = sum(counts), len(counts)
    assert number(opened.text("#t-shown")) == shown
    assert number(opened.text("#t-empty")) == sum(count == 0 for count in counts)
    assert number(opened.text("#t-precision")) == pytest.approx(100 * expected / shown, abs=0.051)
    assert number(opened.text("#t-liked")) == pytest.approx(expected / people, abs=0.00051)
    assert number(opened.text("#slider-value")) == pytest.approx(100 * threshold)
    first = opened.page.locator("#people-figure details")
    first.evaluate("node => { node.open = true; node.fillIn(); }")
    cells = first.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(c => c.textContent))"
    )
    assert sum(number(howmany) for _, howmany in cells) == people
    assert number(cells[2][1]) == sum(count == 2 for count in counts)


def test_searching_a_user_shows_that_users_list(opened: Opened, setting: Setting) -> None:
    page = opened.page
    page.fill("#search", "user-2")
    names = page.locator("#people option").all_text_contents()
    assert names
    assert all("user-2" in name for name in names)
    page.select_option("#people", label="user-20")
    rows = setting.users == "user-20"
    order = np.argsort(-setting.probabilities[rows])[:10]
    shown = page.locator("#person tbody th").all_text_contents()
    assert shown == setting.items[rows][order].tolist()
    percents = [number(text) for text in page.locator("#person td.probability").all_text_contents()]
    assert percents == pytest.approx(100 * setting.probabilities[rows][order], abs=0.06)
    slide(page, int(np.flatnonzero(GRID == 0.3)[0]), "10")
    kept = (setting.probabilities[rows][order] >= 0.3).sum()
    assert page.locator("#person tr.pruned").count() == len(order) - kept
    page.fill("#search", "nobody is called this")
    assert "0 of" in opened.text("#found")
    page.fill("#search", "")


def test_hostile_names_are_shown_as_they_are(opened: Opened) -> None:
    page = opened.page
    for name in HOSTILE:
        page.fill("#search", name[:4])
        at = page.locator("#people option").evaluate_all(
            "(options, name) => options.findIndex(o => o.textContent === name)", name
        )
        assert at >= 0, name
        page.select_option("#people", index=at)
        assert page.text_content("#person h3 bdi") == name
    page.fill("#search", "")
    assert page.locator("script").count() == 2
    assert page.locator("img, iframe, object, embed, form").count() == 0
    assert opened.text("#top bdi") == HOSTILE[1]
    shown = page.locator("#segments .name").all_text_contents()
    assert set(HOSTILE) <= set(shown)


def test_reliability_follows_its_controls(opened: Opened) -> None:
    page = opened.page
    before = page.inner_html("#reliability-figure .holder")
    page.click("#reliability .switches button[data-value='logit']")
    logit = page.inner_html("#reliability-figure .holder")
    assert logit != before
    page.click("#reliability .thumb[data-method='Isotonic']")
    assert "Isotonic" in str(page.get_attribute("#reliability-figure svg", "aria-label"))
    assert page.inner_html("#reliability-figure .holder") != logit
    box = page.locator("#reliability-figure svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    assert "rows" in opened.text("#tip")


def test_metrics_explain_themselves_on_focus_and_sort(opened: Opened) -> None:
    page = opened.page
    page.locator("#methods th[data-metric='Brier'] button").focus()
    page.wait_for_selector("#tip", state="visible")  # the page may have to scroll there first
    assert "squared" in opened.text("#tip")
    page.keyboard.press("Enter")
    values = [
        float(text)
        for text in page.locator("#methods td[data-metric='Brier'] .value").all_text_contents()
    ]
    assert values == sorted(values)
    page.keyboard.press("Escape")
    assert not page.is_visible("#tip")


def test_every_control_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(140):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"slider", "search", "people", "theme", "SELECT", "SUMMARY", "A"} <= reached
    page.focus("#slider")
    before = opened.text("#slider-value")
    page.keyboard.press("ArrowRight")
    assert opened.text("#slider-value") != before


def test_the_theme_follows_the_reader(opened: Opened) -> None:
    page = opened.page
    colour = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(colour)
    assert light != dark
    page.click("#theme")
    assert page.evaluate(colour) == light
    page.emulate_media(color_scheme="light", media="print")
    assert not page.is_visible("#theme")
    page.emulate_media(media="screen")


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_nothing_sticks_out(browser: Any, setting: Setting, width: int) -> None:
    narrow = Opened(browser, setting.path, viewport={"width": width, "height": 800})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= width
    narrow.page.close()


def barriers(page: Any) -> list[tuple[str, str, str]]:
    """What axe finds serious or critical, with everything opened."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    page.evaluate(
        "document.querySelectorAll('details').forEach(d => { d.open = true; if (d.fillIn) d.fillIn(); })"
    )
    return [
        (one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"])
        for one in axe.Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier(browser: Any, setting: Setting, scheme: str) -> None:
    fresh = Opened(
        browser, setting.path, color_scheme=scheme, viewport={"width": 1280, "height": 900}
    )
    assert barriers(fresh.page) == []
    fresh.page.close()


def test_a_page_without_users_says_what_to_add(
    browser: Any, setting: Setting, tmp_path: Path
) -> None:
    report(setting.fitted, setting.scores[:2000], setting.labels[:2000]).save(
        tmp_path / "alone.html"
    )
    alone = Opened(browser, tmp_path / "alone.html")
    assert "--user" in alone.text("#threshold")
    assert "--user" in alone.text("#explorer")
    assert alone.said == []
    alone.page.close()


def test_results_of_a_reproduction_on_the_same_kind_of_page(browser: Any, tmp_path: Path) -> None:
    from calibrank.experiment.overview import overview, read_rows
    from calibrank.report.build import results_report

    result_rows(tmp_path / "results")
    found = overview(read_rows(tmp_path / "results"), lambda *_: 0.04)
    results_report(found, HOSTILE[0], "published.csv", "calibrank report").save(
        tmp_path / "results.html"
    )
    results = Opened(browser, tmp_path / "results.html")
    shown = results.text("#results-table")
    assert "0.1050" in shown
    assert "paper 0.0400" in shown
    before = results.page.inner_html("#results-figure")
    results.page.select_option(".controls label:nth-of-type(2) select", "LogLoss")
    assert "0.5050" in results.text("#results-table")
    assert results.page.inner_html("#results-figure") != before
    assert results.said == []
    assert barriers(results.page) == []
    results.page.close()


def test_it_stayed_silent_and_asked_for_nothing(opened: Opened, setting: Setting) -> None:
    assert opened.said == []
    assert [url.split("#")[0] for url in opened.asked] == [setting.path.as_uri()]
