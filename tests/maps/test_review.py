"""The card of a map for its reviewers, as Markdown and as HTML."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import calibrank as cr
from calibrank._internal.json import digest_of
from calibrank.maps.review import make_card
from tests.maps.samples import gaussian_map, level_term, min_max_map, spline_map, step_map

MAPS = [gaussian_map(), step_map(7), min_max_map(), spline_map()]
EVALUATION: dict[str, Any] = {
    "rows": 1234,
    "metrics": {"ECE": {"value": 0.0123, "low": 0.01, "high": 0.02}},
}


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.mark.parametrize("fitted", MAPS, ids=lambda fitted: fitted.curve.kind)
def test_a_card_has_what_a_reviewer_needs(fitted: cr.CalibrationMap) -> None:
    card = make_card(fitted, EVALUATION)
    markdown = card.to_markdown()
    headings = re.findall(r"^## (.*)$", markdown, re.MULTILINE)
    assert headings == [
        "Data",
        "Base rate",
        "Method",
        "Probabilities",
        "Metrics",
        "Limits",
        "Digests",
    ]
    assert f"| rows | {fitted.record.rows:,} |" in markdown
    assert f"| map | {digest_of(fitted.to_dict())} |" in markdown
    assert "| ECE | 0.01230 | 0.01000 to 0.02000 |" in markdown
    assert "Evaluated on 1,234 rows" in markdown
    page = Tags()
    page.feed(card.to_html())
    assert page.open == []
    assert "0.01000 to 0.02000" in page.text
    assert digest_of(fitted.to_dict()) in page.text
    assert "http" not in card.to_html().replace("http://www.w3.org", "")


def test_a_card_without_metrics_says_so() -> None:
    markdown = make_card(MAPS[0]).to_markdown()
    assert "None were given" in markdown
    assert "no evaluation on other data" in markdown


def test_a_card_names_the_map_that_was_replaced_and_the_columns_that_change_it() -> None:
    record = replace(gaussian_map().record, previous_map="sha256:0123")
    fitted = replace(gaussian_map(), record=record, terms=(level_term("country"),))
    text = make_card(fitted).to_markdown()
    assert "| map that it replaced | sha256:0123 |" in text
    assert "These are probabilities of an average row, which country changes." in text
    assert "replaced" not in make_card(gaussian_map()).to_markdown()
    assert "average row" not in make_card(gaussian_map()).to_markdown()


def test_limits_follow_from_the_base_rate_source() -> None:
    biased = replace(MAPS[0], record=replace(MAPS[0].record, evidence="ips"))
    assert "The base rate is an assumption" in make_card(biased).to_markdown()
    anchored = cr.anchor(biased, [-1.0, 0.0, 1.0, 2.0], [0, 0, 1, 1])
    text = make_card(anchored).to_markdown()
    assert "The base rate is an assumption" not in text
    assert "Anchored on 4 randomly shown pairs" in text
    assert "not probabilities" in make_card(min_max_map()).to_markdown()


def test_names_are_text_and_never_markup() -> None:
    hostile = "<script>x</script> | [a](b) *c*"
    record = replace(MAPS[0].record, method=hostile, model_name=hostile)
    card = make_card(replace(MAPS[0], record=record))
    assert "<script" not in card.to_html()
    assert hostile in re.sub(r"\\(.)", r"\1", card.to_markdown())
    assert not re.search(r"(?<!\\)<script", card.to_markdown())
    assert "\\|" in card.to_markdown()


@pytest.mark.parametrize(
    "evaluation", [{}, {"rows": 1}, {"rows": 1, "metrics": {"ECE": {"value": "a"}}}, []]
)
def test_damaged_evaluations_are_refused(evaluation: Any) -> None:
    with pytest.raises(cr.DataError, match="evaluation"):
        make_card(MAPS[0], evaluation)
