"""Tables and summary of a reproduction: our numbers with intervals beside the published ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from calibrank._internal.atomic import write_all_atomic
from calibrank.experiment.figures import save_figures
from calibrank.experiment.published import (
    DATASET_TITLES,
    LOSS_SUFFIXES,
    OUR_METRICS,
    PARAMETRIC,
    PUBLISHED_ROWS,
    Comparison,
    Published,
    agreement_line,
    agreement_table,
    outside_table,
    table,
)
from calibrank.experiment.results import RANKING, SWEPT_METHODS, Fit, Protocol, Spread
from calibrank.experiment.spec import Spec

TABLE_TITLES = {
    "ECE": "Table 1: expected calibration error",
    "MCE": "Table 4: maximum calibration error",
    "NLL": "Table 5: negative log-likelihood",
}
RANKING_NAMES = ("NDCG@1", "NDCG@3", "NDCG@5", "Recall@1", "Recall@3", "Recall@5")
RULE = (
    "Of the numbers tried, the one at which the mean prediction over the test set "
    f"({', '.join(SWEPT_METHODS)}; mean over seeds, median over models) is nearest to the test "
    "set's base rate. Numbers at which a fit failed are left out."
)
_LEGEND = "Mean over seeds ± half its 95% interval (published number, difference).\n"

Key = TypeVar("Key")
Predictions = Mapping[str, Mapping[str, pa.Table]]
"""What figures are drawn from, by spec and model."""


def write_outputs(
    folder: Path, specs: Sequence[Spec], rows: pa.Table, out: Path, predictions: Predictions
) -> list[Comparison]:
    """Write tables and figures for each dataset of the rows, and one summary of them all.

    `folder` holds the specs and what was published, which is returned beside ours.
    """
    published = Published.beside(folder)
    # In the order of the paper's tables; other datasets follow.
    present = list(dict.fromkeys(rows["dataset"].to_pylist()))
    known = [name for name in DATASET_TITLES if name in present]
    compared: list[Comparison] = []
    pages: dict[Path, str | bytes] = {}
    for dataset in dict.fromkeys([*known, *present]):
        pages[out / dataset / "tables.md"] = dataset_page(dataset, specs, rows, published)
        for spec in specs:
            protocol = Protocol.of(rows, spec, dataset, spec.splits[0])
            if protocol.models:
                figures = out / dataset / "figures" / spec.name
                save_figures(protocol, predictions.get(spec.name, {}), figures)
        # The first spec that follows the paper is compared with it, on the released split.
        following = [spec for spec in specs if "released" in spec.splits]
        found = [Protocol.of(rows, spec, dataset, "released") for spec in following]
        for protocol in [protocol for protocol in found if protocol.models][:1]:
            compared += published.compare(protocol)
    parts = ["# All datasets\n"]
    if compared:
        parts += [agreement_line(compared) + "\n", agreement_table(compared)]
        parts += ["## What is outside\n", outside_table(compared, published)]
    write_all_atomic({**pages, out / "summary.md": "\n".join(parts)})
    return compared


def dataset_page(dataset: str, specs: Sequence[Spec], rows: pa.Table, published: Published) -> str:
    """Every table of a dataset, spec by spec."""
    protocols = [Protocol.of(rows, spec, dataset, spec.splits[0]) for spec in specs]
    protocols = [protocol for protocol in protocols if protocol.models]
    seeds = max((protocol.seeds for protocol in protocols), default=0)
    parts = [f"# {dataset}, {seeds} seeds\n", _LEGEND]
    for protocol in protocols:
        parts += _protocol_tables(protocol, published)
        parts.append(split_and_loss_table(rows, protocol.spec, dataset))
    return "\n".join(part for part in parts if part)


def _protocol_tables(protocol: Protocol, published: Published) -> Iterator[str]:
    """Every table of one protocol that has a counterpart in the paper."""
    spec = protocol.spec
    yield f"## {spec.title}\n\n{spec.why.strip()}\n"
    yield f"{_negatives(protocol)} {spec.why_negatives.strip()}\n"
    # The paper's numbers are for the released split only.
    compared = published.compare(protocol) if protocol.split == "released" else []
    if compared:
        yield agreement_line(compared) + "\n"
    for paper_metric in TABLE_TITLES:
        yield _calibration_table(protocol, published, paper_metric)
    yield uerm_table(protocol, published)

    def ranking(metric: str, model: str) -> str:
        found = published.find(metric, "", "", protocol.dataset, model)
        return _result_cell(protocol.spread(metric, RANKING, model), found)

    lines = [([metric], metric) for metric in RANKING_NAMES]
    yield "### Table 3: ranking accuracy\n\n" + _by_model(protocol, ["metric"], lines, ranking)
    if spec.sweep:
        yield rule_table(protocol)
        yield own_negatives_table(protocol, compared)
    if spec.estimators:
        yield estimator_table(protocol)


def _by_model(
    protocol: Protocol,
    names: Sequence[str],
    lines: Iterable[tuple[Sequence[str], Key]],
    cell: Callable[[Key, str], str],
) -> str:
    """A table with a column per model; lines of which no cell has a result are left out."""
    rows = []
    for labels, key in lines:
        cells = [cell(key, model) for model in protocol.models]
        if any(cells):
            rows.append([*labels, *cells])
    return table([*names, *protocol.models], rows)


def _calibration_table(protocol: Protocol, published: Published, paper_metric: str) -> str:
    """A table like the paper's Table 1."""

    def result(fit: Fit, model: str) -> str:
        found = published.find(paper_metric, *fit[:2], protocol.dataset, model)
        return _result_cell(protocol.spread(OUR_METRICS[paper_metric], fit, model), found)

    lines = [([group, fit.method], fit) for group, fit in PUBLISHED_ROWS]
    shown = _by_model(protocol, ["", "method"], lines, result)
    return f"### {TABLE_TITLES[paper_metric]}\n\n" + shown


def uerm_table(protocol: Protocol, published: Published) -> str:
    """How much UERM lowers the ECE of each parametric method, with a paired test.

    The paper's claim is 7.40% to 76.52% "for all parametric methods".
    """
    changes: list[float] = []

    def change(method: str, model: str) -> str:
        fits = (Fit(method, "ips"), Fit(method, "naive"))
        ours, naive = [protocol.spread("ECE", fit, model) for fit in fits]
        if ours is None or naive is None:
            return ""
        changes.append(1 - ours.mean / naive.mean)
        text = f"{changes[-1]:+.1%}, {_p_value(protocol.paired_p('ECE', *fits, model))}"
        found = [published.find("ECE", *fit[:2], protocol.dataset, model) for fit in fits]
        if found[0] is not None and found[1] is not None:
            text += f" ({1 - found[0] / found[1]:+.1%})"
        return text

    shown = _by_model(protocol, [""], [([method], method) for method in PARAMETRIC], change)
    if not changes:
        return ""
    return (
        "### How much lower the ECE is with UERM than with the naive loss: "
        f"{min(changes):+.1%} to {max(changes):+.1%} (claimed: +7.4% to +76.5%)\n\n"
    ) + shown


def rule_table(protocol: Protocol) -> str:
    """The numbers of negatives that the rule gives for each loss, beside those of the spec."""
    names = ["loss", "by the rule", "in the spec", "mean prediction / base rate", "numbers tried"]
    rows = []
    for loss in protocol.spec.losses:
        found = protocol.nearest_negatives(loss)
        if found is not None:
            in_spec = str(protocol.spec.negatives_for(protocol.dataset, loss))
            name = LOSS_SUFFIXES[loss].removeprefix(", ")
            tried = ", ".join(map(str, found.tried))
            rows.append([name, str(found.count), in_spec, f"{found.ratio:.2f}", tried])
    return f"### Negatives per held-out positive\n\n{RULE}\n\n" + table(names, rows)


def own_negatives_table(protocol: Protocol, compared: Sequence[Comparison]) -> str:
    """A variant: the rule applied to each model alone, for the methods tried with every number."""
    cells: dict[tuple[str, str], str] = {}
    usual = []
    ours = []
    for each in compared:
        number = each.published
        own = replace(protocol, models=[number.model]).nearest_negatives(number.loss)
        if own is None or number.method not in SWEPT_METHODS:
            continue
        fit = Fit(number.method, number.loss, negatives=own.count)
        spread = protocol.spread(OUR_METRICS[number.metric], fit, number.model)
        # Rows may hold the ECE alone for other numbers of negatives than the spec's.
        if spread is None:
            continue
        usual.append(each)
        ours.append(Comparison(number, spread))
        if number.metric == "ECE":
            text = f"{own.count}: {spread.mean:.4f} ({number.value:.4f})"
            cells[number.method + LOSS_SUFFIXES[number.loss], number.model] = text
    if not cells:
        return ""
    counts = [sum(each.met for each in numbers) for numbers in (ours, usual)]
    title = (
        "### A variant: each model's own number of negatives, by the same rule\n\n"
        f"{counts[0]} of {len(ours)} published numbers are met; with one number for all models, "
        f"{counts[1]} of them. Number: ECE (published).\n\n"
    )
    lines = [([name], name) for name in dict.fromkeys(name for name, _ in cells)]
    return title + _by_model(protocol, [""], lines, lambda *key: cells.get(key, ""))


def estimator_table(protocol: Protocol) -> str:
    """ECE by propensity estimator: with UERM's number of negatives, and with each one's own."""

    def result(name: str, model: str) -> str:
        same = protocol.spread("ECE", Fit("Gaussian", "ips", name), model)
        texts = ["failed" if same is None else f"{same.mean:.4f}"]
        found = protocol.nearest_negatives("ips", name)
        if found is not None:
            best = protocol.spread("ECE", Fit("Gaussian", "ips", name, found.count), model)
            texts.append("" if best is None else f"{best.mean:.4f}")
        return "; ".join(texts)

    lines = []
    for name in ("popularity", *protocol.spec.estimators):
        own = protocol.nearest_negatives("ips", name)
        if protocol.tried_negatives("ips", name):
            lines.append(
                ([name.replace("_", " "), "none" if own is None else str(own.count)], name)
            )
    title = (
        "### ECE by propensity estimator, Gaussian with UERM: with the same number of negatives; "
        "with the number that the rule gives for the estimator\n\n"
    )
    return title + _by_model(protocol, ["estimator", "its own number"], lines, result)


def split_and_loss_table(results: pa.Table, spec: Spec, dataset: str) -> str:
    """A table that the paper does not have: the Gaussian method by split and loss."""
    title = (
        "### Gaussian by split and loss: ECE; mean prediction over the true base rate; "
        "ECE of each user's top 5\n\n"
    )
    formats = {"ECE": ".4f", "CalibrationInTheLarge": ".2f", "ECE@5": ".4f"}
    by_split = {split: Protocol.of(results, spec, dataset, split) for split in spec.splits}

    def result(key: tuple[str, str], model: str) -> str:
        split, loss = key
        texts = []
        for metric, form in formats.items():
            spread = by_split[split].spread(metric, Fit("Gaussian", loss), model)
            if spread is None:
                return ""
            texts.append(f"{spread.mean:{form}}")
        return "; ".join(texts)

    lines = [([split, loss], (split, loss)) for split in spec.splits for loss in spec.losses]
    every_model = replace(by_split[spec.splits[0]], models=list(spec.models))
    return title + _by_model(every_model, ["split", "loss"], lines, result)


def _negatives(protocol: Protocol) -> str:
    spec = protocol.spec
    counts = {loss: spec.negatives_for(protocol.dataset, loss) for loss in spec.losses}
    if not any(counts.values()):
        return "Negatives per held-out positive: as many as represent all unobserved pairs."
    words = [f"{count}{LOSS_SUFFIXES[loss]}" for loss, count in counts.items()]
    if len(set(counts.values())) == 1:
        words = [str(next(iter(counts.values())))]
    return f"Negatives per held-out positive: {'; '.join(words)}."


def _result_cell(spread: Spread | None, published: float | None) -> str:
    """The mean, half its interval, and in brackets the published number and the difference."""
    if spread is None:
        return ""
    mean = f"{spread.mean:.4f}"
    interval = "" if math.isnan(spread.half) else f" ±{spread.half:.4f}"
    if published is None:
        return mean + interval
    return f"{mean}{interval} ({published:.4f}, {spread.mean - published:+.4f})"


def _p_value(p: float) -> str:
    """A p-value in words; "-" where it is not defined."""
    return "-" if math.isnan(p) else f"p = {p:.2g}"
