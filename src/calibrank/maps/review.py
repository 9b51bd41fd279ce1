"""A card of a map for its reviewers: data, base rate, method, metrics, limits, digests."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.arguments import shown
from calibrank._internal.json import Fields, digest_of
from calibrank.errors import DataError
from calibrank.maps._card import curve
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.describe import (
    describe_base_rate,
    describe_population,
    describe_range,
    describe_selection,
    is_base_rate_known,
)
from calibrank.maps.record import FitRecord

# Rows of the table of probabilities, and points of the curve.
_TABLE_ROWS = 9
_CURVE_POINTS = 61

_EVIDENCE = {
    "naive": "Labels were used as they are.",
    "ips": "Positive labels were divided by the propensity of being observed.",
    "positive_ips": "Positive labels were weighted by 1 / propensity, negatives by 1.",
    "impressions": "Impressions, weighted by the policy that chose them.",
    "given": "Positive and total masses were passed directly.",
}

_EVALUATE = "Pass the JSON that calibrank evaluate prints."

_SCOPE = (
    "Probabilities hold for users, items and scores like those of the data above. "
    "A new model needs a new map."
)
_SEARCH_SCOPE = (
    "Probabilities hold for documents and queries like those of the data above. Judged documents "
    "are a selection. A new model needs a new map."
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em;"
    "color-scheme:light dark}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid #8884;"
    "vertical-align:top;overflow-wrap:anywhere}td:first-child{overflow-wrap:normal}"
)


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a card: sentences, and a table with a row of headings."""

    title: str
    sentences: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """What a reviewer needs to know about a map, as Markdown or as a page of HTML."""

    title: str
    sections: tuple[Section, ...]
    figure: str
    """The curve as SVG."""

    def to_markdown(self) -> str:
        """The card as Markdown, with tables."""
        parts = [f"# {_markdown(self.title)}"]
        for section in self.sections:
            parts.append(f"## {section.title}")
            parts += [_markdown(sentence) for sentence in section.sentences]
            if section.table:
                parts.append(_markdown_table(section.table))
        return "\n\n".join(parts) + "\n"

    def to_html(self) -> str:
        """The card as one page without scripts, which needs no network."""
        title = html.escape(self.title)
        body = [f"<h1>{title}</h1>{self.figure}"]
        for section in self.sections:
            body.append(f"<h2>{section.title}</h2>")
            body += [f"<p>{html.escape(sentence)}</p>" for sentence in section.sentences]
            if section.table:
                body.append(_html_table(section.table))
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{_STYLE}</style></head>"
            f"<body>{''.join(body)}</body></html>\n"
        )


def make_card(fitted: CalibrationMap, evaluation: Mapping[str, Any] | None = None) -> Card:
    """A card of a map for its reviewers.

    `evaluation` is what `calibrank evaluate --json` or `search fit --json` prints: its metrics with
    their intervals. One of another map is refused.

    >>> from calibrank import Platt
    >>> card = make_card(Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]))
    >>> card.to_markdown().splitlines()[0]
    '# Platt calibration map'
    >>> [section.title for section in card.sections]
    ['Data', 'Base rate', 'Method', 'Probabilities', 'Metrics', 'Limits', 'Digests']
    """
    require_map(fitted)
    scores = np.linspace(*fitted.span, _CURVE_POINTS)
    sections = (
        _data(fitted),
        _base_rate(fitted),
        _method(fitted),
        _probabilities(fitted),
        _metrics(fitted, evaluation),
        Section("Limits", _limits(fitted, has_metrics=evaluation is not None)),
        _digests(fitted),
    )
    title = f"{fitted.method} calibration map"
    return Card(title, sections, curve(scores, fitted.without_terms().predict(scores)))


def _data(fitted: CalibrationMap) -> Section:
    record = fitted.record
    rows = [("", "")]
    if record.model_name is not None:
        rows.append(("scores of", record.model_name))
    if record.date is not None:
        rows.append(("date", record.date))
    rows.append(("rows", f"{record.rows:,}"))
    rate = record.positive / record.total
    rows.append(("positive mass", f"{record.positive:,.6g} of {record.total:,.6g} ({rate:.2%})"))
    if record.score_quantiles is not None:
        low, high = record.score_quantiles[0], record.score_quantiles[-1]
        rows.append(("scores", f"{low:.4g} to {high:.4g}"))
    if record.negatives_kept is not None:
        rows.append(("negatives kept", f"{record.negatives_kept:.4g}, corrected for"))
    if record.pooling_error is not None:
        error = f"moved probabilities by at most {record.pooling_error:.1e} on average"
        rows.append(("pooling of scores", error))
    return Section("Data", _about_labels(record), tuple(rows))


def _about_labels(record: FitRecord) -> tuple[str, ...]:
    if record.population is not None:
        return (describe_population(record.population),)
    return (f"Evidence: {record.evidence}. {_EVIDENCE.get(record.evidence, '')}".strip(),)


def _base_rate(fitted: CalibrationMap) -> Section:
    record = fitted.record
    sentences = [f"Source: {record.base_rate_source}.", describe_base_rate(record)]
    if record.base_rate_range is not None:
        low, high = record.base_rate_range
        sentences.append(f"95% interval of the base rate: {low:.2%} to {high:.2%}.")
    if record.sensitivity is not None:
        sentences.append(describe_range(record.sensitivity))
    return Section("Base rate", tuple(sentence for sentence in sentences if sentence))


def _method(fitted: CalibrationMap) -> Section:
    record = fitted.record
    sentences = [fitted.description]
    if record.selection is not None:
        sentences.append(f"Method: {describe_selection(record.selection)}.")
    if record.residual is not None:
        sentences.append(f"Optimality residual {record.residual:.0e}: the fit is exact.")
    if record.at_bound:
        sentences.append("The curve is held from falling: the constraint is active.")
    errors = fitted.standard_errors
    rows = []
    for name, value in fitted.parameters.items():
        rows.append((name, f"{value:.6g}", f"{errors[name]:.2g}"))
    table = (("parameter", "value", "standard error"), *rows) if rows else ()
    return Section("Method", tuple(sentences), table)


def _probabilities(fitted: CalibrationMap) -> Section:
    scores = np.linspace(*fitted.span, _TABLE_ROWS)
    alone = fitted.without_terms()
    interval = alone.sampling_interval(scores)
    rows = []
    for score, value, low, high in zip(scores, alone.predict(scores), *interval, strict=True):
        rows.append((f"{score:.4g}", f"{value:.2%}", f"{low:.2%} to {high:.2%}"))
    sentence = "The intervals are for the sampling error of the fit alone."
    if fitted.terms:
        columns = ", ".join(fitted.columns)
        sentence += f" These are probabilities of an average row, which {columns} changes."
    headings = ("score", "probability", "95% interval")
    return Section("Probabilities", (sentence,), (headings, *rows))


_HELD_OUT = (
    "The rows are judged documents of held-out queries, under maps of the other queries. Intervals "
    "are by query; that of the ECE is where 95% of the ECEs would lie if the probabilities were "
    "right."
)


def _metrics(fitted: CalibrationMap, evaluation: Mapping[str, Any] | None) -> Section:
    if evaluation is None:
        return Section("Metrics", ("None were given: evaluate the map, and add its JSON.",))
    if not isinstance(evaluation, Mapping):
        raise DataError("evaluation", "be a JSON object", type(evaluation).__name__, _EVALUATE)
    fields = Fields("evaluation", evaluation, _EVALUATE)
    _require_same_map(fitted, evaluation.get("map"))
    rows = []
    metrics = fields.child("metrics")
    for name in metrics.values:
        estimate = metrics.child(name)
        ends = f"{_number(estimate, 'low')} to {_number(estimate, 'high')}"
        rows.append((name, _number(estimate, "value"), ends))
    sentences = [f"Evaluated on {fields.count('rows'):,} rows; 95% intervals."]
    if "held_out" in evaluation:
        sentences.append(_HELD_OUT)
    if "calibration_test" in evaluation:
        p_value = fields.child("calibration_test").optional("p_value")
        if p_value is not None:
            test = f"Test of calibration: p = {p_value:.3g}. A small value contradicts calibration."
            sentences.append(test)
    return Section("Metrics", tuple(sentences), (("metric", "value", "95% interval"), *rows))


def _require_same_map(fitted: CalibrationMap, evaluated: object) -> None:
    """Refuse metrics of another map; an evaluation of a column of probabilities names none."""
    digest = fitted.digest
    if evaluated is not None and evaluated != digest:
        raise DataError(
            "evaluation",
            f"be of this map ({digest[:15]}...)",
            f"one of {shown(evaluated)}",
            "Evaluate this map, and pass the JSON.",
        )


def _number(estimate: Fields, name: str) -> str:
    # A metric that is not defined for these rows has no value.
    value = estimate.optional(name)
    return "-" if value is None else f"{value:.5f}"


def _limits(fitted: CalibrationMap, *, has_metrics: bool) -> tuple[str, ...]:
    found = [_SCOPE if fitted.record.population is None else _SEARCH_SCOPE]
    if not is_base_rate_known(fitted.record):
        found.append(
            "The base rate is an assumption: all probabilities may be too high or too low by a "
            "common factor. Do not promise rates by them."
        )
    if fitted.curve.kind == "rescale":
        found.append("Scores are only rescaled. These are not probabilities.")
    if not has_metrics:
        found.append("This card has no evaluation on other data than those of the fit.")
    return tuple(found)


def _digests(fitted: CalibrationMap) -> Section:
    content = fitted.to_dict()
    rows = [("", ""), ("map", digest_of(content))]
    if fitted.record.previous_map is not None:
        rows.append(("map that it replaced", fitted.record.previous_map))
    rows.append(("format", f"{content['format']}, version {content['version']}"))
    return Section("Digests", (), tuple(rows))


def _markdown(text: str) -> str:
    """Text without markup: characters that begin HTML, tables, links or emphasis are escaped."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _markdown_table(table: tuple[tuple[str, ...], ...]) -> str:
    lines = ["| " + " | ".join(map(_markdown, row)) + " |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    return "\n".join(lines)


def _html_table(table: tuple[tuple[str, ...], ...]) -> str:
    rows = []
    for position, row in enumerate(table):
        cell = "th" if position == 0 else "td"
        cells = "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in row)
        # A table of facts has no headings.
        if any(row):
            rows.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(rows)}</table>"
