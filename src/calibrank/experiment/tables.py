"""Markdown tables of a reproduction: our numbers with intervals beside the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrank.experiment.cell import SWEPT_METHODS
from calibrank.experiment.protocol import RANKING, Fit, Protocol
from calibrank.experiment.published import (
    COMPETITORS,
    LOSS_SUFFIXES,
    OUR_METRICS,
    PARAMETRIC,
    PROPOSED,
    PUBLISHED_ROWS,
    Comparison,
    Published,
    Reasons,
    agreement_line,
    agreement_table,
    outside_table,
    table,
    title_of,
)
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread

TABLE_TITLES = {
    "ECE": "Table 1: expected calibration error",
    "MCE": "Table 4: maximum calibration error",
    "NLL": "Table 5: negative log-likelihood",
}
RANKING_TITLE = "Table 3: ranking accuracy"
RANKING_NAMES = ("NDCG@1", "NDCG@3", "NDCG@5", "Recall@1", "Recall@3", "Recall@5")
FURTHER_ROWS = tuple(
    ("not in the paper", fit)
    for fit in (
        Fit("GammaGaussian", "naive"),
        Fit("GammaGaussian", "ips"),
        Fit("Temperature", "ips"),
        Fit("Isotonic", "ips"),
    )
)
RULE = (
    "Of the numbers tried, the one at which the mean prediction over the test set "
    f"({', '.join(SWEPT_METHODS)}; mean over seeds, median over models) is nearest to the test "
    "set's base rate. Numbers at which a fit failed are left out."
)
_LEGEND = (
    "Mean over seeds ± half its 95% interval (published number, difference); "
    "best of a column in bold.\n"
)


@dataclass(frozen=True, slots=True)
class NearestNegatives:
    """What the rule gives for one loss."""

    count: int
    mean_predictions: dict[int, float]
    """The mean prediction at each number that was tried."""
    base_rate: float

    @property
    def ratio(self) -> float:
        """The mean prediction at the chosen number over the base rate."""
        return self.mean_predictions[self.count] / self.base_rate


def nearest_negatives(
    protocol: Protocol, loss: str, propensity: str = "popularity"
) -> NearestNegatives | None:
    """Apply the rule to the rows of a protocol; None if there are none.

    A biased log does not identify the base rate, and the number of negatives per positive sets it.
    The published rows of both losses lie near the test set's base rate, so each loss must have had
    a number of its own. The rule finds it, from the test set.
    """
    means = {}
    base_rates: list[float] = []
    for count in protocol.tried_negatives(loss, propensity):
        fits = [Fit(method, loss, propensity, count) for method in SWEPT_METHODS]
        predictions = _means_by_model(protocol, "mean prediction", fits)
        # 0 means as many as represent all unobserved pairs: it is no number to choose.
        if predictions and count:
            # Not the mean: one model with other scores (CML) would decide for all.
            means[count] = float(np.median(predictions))
        if predictions:
            base_rates += _means_by_model(protocol, "base rate", fits)
    if not means:
        return None
    base_rate = float(np.mean(base_rates))
    chosen = min(means, key=lambda count: abs(means[count] - base_rate))
    return NearestNegatives(chosen, means, base_rate)


def dataset_page(
    dataset: str, specs: Sequence[Spec], results: Results, published: Published
) -> str:
    """Every table of a dataset, spec by spec."""
    protocols = [Protocol.of(results, spec, dataset, spec.splits[0]) for spec in specs]
    protocols = [protocol for protocol in protocols if protocol.models]
    seeds = max((protocol.seeds for protocol in protocols), default=0)
    parts = [f"# {dataset}, {seeds} seeds\n", _LEGEND]
    for protocol in protocols:
        parts += _protocol_tables(protocol, published)
        parts.append(split_and_loss_table(results, protocol.spec, dataset))
    return "\n".join(part for part in parts if part)


def summary_page(
    protocols: Sequence[Protocol],
    published: Published,
    compared: Sequence[Comparison],
    reasons: Reasons,
) -> str:
    """How many published numbers are met, which are not, and the tables side by side."""
    parts = ["# All datasets\n"]
    if compared:
        parts += [agreement_line(compared) + "\n", agreement_table(compared)]
        parts += ["## What is outside\n", outside_table(compared, reasons)]
    names = []
    for protocol in protocols:
        names += [f"{title_of(protocol.dataset)} {model}" for model in protocol.models]
    rows: list[list[str]] = []
    for paper_metric, title in TABLE_TITLES.items():
        rows = []
        for group, fit in PUBLISHED_ROWS:
            cells = _short_cells(protocols, published, paper_metric, fit)
            rows.append([f"{fit.method} ({group})", *cells])
        parts.append(f"## {title}: ours (published)\n\n" + table(["", *names], rows))
    rows = [[name, *_short_cells(protocols, published, name, RANKING)] for name in RANKING_NAMES]
    parts.append(f"## {RANKING_TITLE}: ours (published)\n\n" + table(["", *names], rows))
    for protocol in protocols:
        title = title_of(protocol.dataset)
        parts += [f"## UERM and the naive loss, {title}\n", uerm_table(protocol, published)]
    return "\n".join(parts)


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
    rows = []
    for metric in RANKING_NAMES:
        cells = []
        for model in protocol.models:
            found = published.find(metric, "", "", protocol.dataset, model)
            cells.append(_result_cell(protocol.spread(metric, RANKING, model), found))
        rows.append([metric, *cells])
    yield f"### {RANKING_TITLE}\n\n" + table(["metric", *protocol.models], rows)
    if spec.sweep:
        yield rule_table(protocol)
        yield own_negatives_table(protocol, compared)
    if spec.estimators:
        yield estimator_table(protocol)


def _calibration_table(protocol: Protocol, published: Published, paper_metric: str) -> str:
    """A table like the paper's Table 1."""
    metric = OUR_METRICS[paper_metric]
    models = protocol.models
    # Only methods of the paper compete for the bold number.
    fits = [fit for _, fit in PUBLISHED_ROWS]
    best = {model: _lowest(protocol, metric, fits, model)[0] for model in models}
    rows = []
    for row in (*PUBLISHED_ROWS, *FURTHER_ROWS):
        group, fit = row
        cells = []
        for model in models:
            spread = protocol.spread(metric, fit, model)
            found = published.find(paper_metric, *fit[:2], protocol.dataset, model)
            cells.append(_result_cell(spread, found, bold=best[model] == fit))
        if any(cells):
            name = fit.method + LOSS_SUFFIXES[fit.loss] if row in FURTHER_ROWS else fit.method
            rows.append([group, name, *cells])
    compared = [_improvement(protocol, published, paper_metric, model) for model in models]
    rows.append(["", "improvement", *[improvement for improvement, _ in compared]])
    rows.append(["", "paired test", *[test for _, test in compared]])
    return f"### {TABLE_TITLES[paper_metric]}\n\n" + table(["", "method", *models], rows)


def _improvement(
    protocol: Protocol, published: Published, paper_metric: str, model: str
) -> tuple[str, str]:
    """How much lower the best proposed method is than the best competitor, and a paired test.

    Both have UERM; the published improvement stands in brackets.
    """
    metric = OUR_METRICS[paper_metric]
    means = []
    fits = []
    reported = []
    for methods in (PROPOSED, COMPETITORS):
        fit, mean = _lowest(protocol, metric, [Fit(method, "ips") for method in methods], model)
        fits.append(fit)
        means.append(mean)
        key = (protocol.dataset, model)
        reported += [published.find(paper_metric, method, "ips", *key) for method in methods]
    ours, theirs = fits
    if ours is None or theirs is None:
        return "", ""
    p = protocol.paired_p(metric, ours, theirs, model)
    test = f"{ours.method} against {theirs.method}: {_p_value(p)}"
    text = f"{1 - means[0] / means[1]:+.1%}" if means[1] else ""
    numbers = [number for number in reported if number is not None]
    if len(numbers) < len(reported):
        return text, test
    count = len(PROPOSED)
    return f"{text} ({1 - min(numbers[:count]) / min(numbers[count:]):+.1%})", test


def uerm_table(protocol: Protocol, published: Published) -> str:
    """How much UERM lowers the ECE of each parametric method, with a paired test.

    The paper's claim is 7.40% to 76.52% "for all parametric methods".
    """
    changes: list[float] = []
    rows = []
    for method in PARAMETRIC:
        fits = (Fit(method, "ips"), Fit(method, "naive"))
        cells = []
        for model in protocol.models:
            ours, naive = [protocol.spread("ECE", fit, model) for fit in fits]
            if ours is None or naive is None:
                cells.append("")
                continue
            changes.append(1 - ours.mean / naive.mean)
            text = f"{changes[-1]:+.1%}, {_p_value(protocol.paired_p('ECE', *fits, model))}"
            found = [published.find("ECE", *fit[:2], protocol.dataset, model) for fit in fits]
            if found[0] is not None and found[1] is not None:
                text += f" ({1 - found[0] / found[1]:+.1%})"
            cells.append(text)
        rows.append([method, *cells])
    if not changes:
        return ""
    title = (
        "### How much lower the ECE is with UERM than with the naive loss: "
        f"{min(changes):+.1%} to {max(changes):+.1%} (claimed: +7.4% to +76.5%)\n\n"
    )
    return title + table(["", *protocol.models], rows)


def rule_table(protocol: Protocol) -> str:
    """The numbers of negatives that the rule gives for each loss, beside those of the spec."""
    names = ["loss", "by the rule", "in the spec", "mean prediction / base rate", "numbers tried"]
    rows = []
    for loss in protocol.spec.losses:
        found = nearest_negatives(protocol, loss)
        if found is not None:
            tried = ", ".join(map(str, found.mean_predictions))
            in_spec = str(protocol.spec.negatives_for(protocol.dataset, loss))
            name = LOSS_SUFFIXES[loss].removeprefix(", ")
            rows.append([name, str(found.count), in_spec, f"{found.ratio:.2f}", tried])
    return f"### Negatives per held-out positive\n\n{RULE}\n\n" + table(names, rows)


def own_negatives_table(protocol: Protocol, compared: Sequence[Comparison]) -> str:
    """A variant: the rule applied to each model alone, for the methods tried with every number."""
    rows: dict[str, dict[str, str]] = {}
    usual = []
    ours = []
    for each in compared:
        number = each.published
        own = nearest_negatives(replace(protocol, models=[number.model]), number.loss)
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
            row = rows.setdefault(number.method + LOSS_SUFFIXES[number.loss], {})
            row[number.model] = f"{own.count}: {spread.mean:.4f} ({number.value:.4f})"
    if not rows:
        return ""
    counts = [sum(each.met for each in numbers) for numbers in (ours, usual)]
    title = (
        "### A variant: each model's own number of negatives, by the same rule\n\n"
        f"{counts[0]} of {len(ours)} published numbers are met; with one number for all models, "
        f"{counts[1]} of them. Number: ECE (published).\n\n"
    )
    cells = [
        [name, *[row.get(model, "") for model in protocol.models]] for name, row in rows.items()
    ]
    return title + table(["", *protocol.models], cells)


def estimator_table(protocol: Protocol) -> str:
    """ECE by propensity estimator: with UERM's number of negatives, and with each one's own."""
    title = (
        "### ECE by propensity estimator, Gaussian with UERM: with the same number of negatives; "
        "with the number that the rule gives for the estimator\n\n"
    )
    rows = []
    for name in ("popularity", *protocol.spec.estimators):
        own = nearest_negatives(protocol, "ips", name)
        cells = []
        for model in protocol.models:
            same = protocol.spread("ECE", Fit("Gaussian", "ips", name), model)
            texts = ["failed" if same is None else f"{same.mean:.4f}"]
            if own is not None:
                best = protocol.spread("ECE", Fit("Gaussian", "ips", name, own.count), model)
                texts.append("" if best is None else f"{best.mean:.4f}")
            cells.append("; ".join(texts))
        count = "none" if own is None else str(own.count)
        if protocol.tried_negatives("ips", name):
            rows.append([name.replace("_", " "), count, *cells])
    return title + table(["estimator", "its own number", *protocol.models], rows)


def split_and_loss_table(results: Results, spec: Spec, dataset: str) -> str:
    """A table that the paper does not have: the Gaussian method by split and loss."""
    title = (
        "### Gaussian by split and loss: ECE; mean prediction over the true base rate; "
        "ECE of each user's top 5\n\n"
    )
    formats = {"ECE": ".4f", "CalibrationInTheLarge": ".2f", "ECE@5": ".4f"}
    rows = []
    for split in spec.splits:
        protocol = Protocol.of(results, spec, dataset, split)
        for loss in spec.losses:
            cells = []
            for model in spec.models:
                spreads = [protocol.spread(each, Fit("Gaussian", loss), model) for each in formats]
                pairs = zip(spreads, formats.values(), strict=True)
                texts = [f"{spread.mean:{form}}" for spread, form in pairs if spread is not None]
                cells.append("; ".join(texts) if len(texts) == len(formats) else "")
            if any(cells):
                rows.append([split, loss, *cells])
    return title + table(["split", "loss", *spec.models], rows)


def _negatives(protocol: Protocol) -> str:
    spec = protocol.spec
    counts = {loss: spec.negatives_for(protocol.dataset, loss) for loss in spec.losses}
    if not any(counts.values()):
        return "Negatives per held-out positive: as many as represent all unobserved pairs."
    words = [f"{count}{LOSS_SUFFIXES[loss]}" for loss, count in counts.items()]
    if len(set(counts.values())) == 1:
        words = [str(next(iter(counts.values())))]
    return f"Negatives per held-out positive: {'; '.join(words)}."


def _means_by_model(protocol: Protocol, metric: str, fits: Sequence[Fit]) -> list[float]:
    """The mean of all fits and seeds for each model; empty if one of them is missing."""
    means = []
    for model in protocol.models:
        values: list[float] = []
        for fit in fits:
            by_seed = protocol.by_seed(metric, fit, model)
            if len(by_seed) < protocol.seeds:
                return []
            values += by_seed.values()
        means.append(float(np.mean(values)))
    return means


def _lowest(
    protocol: Protocol, metric: str, fits: Sequence[Fit], model: str
) -> tuple[Fit | None, float]:
    """The fit with the lowest mean, and that mean."""
    lowest: tuple[Fit | None, float] = (None, math.inf)
    for fit in fits:
        spread = protocol.spread(metric, fit, model)
        if spread is not None and spread.mean < lowest[1]:
            lowest = (fit, spread.mean)
    return lowest


def _result_cell(spread: Spread | None, published: float | None, *, bold: bool = False) -> str:
    """The mean, half its interval, and in brackets the published number and the difference."""
    if spread is None:
        return ""
    mean = f"**{spread.mean:.4f}**" if bold else f"{spread.mean:.4f}"
    interval = "" if math.isnan(spread.half) else f" ±{spread.half:.4f}"
    if published is None:
        return mean + interval
    return f"{mean}{interval} ({published:.4f}, {spread.mean - published:+.4f})"


def _short_cells(
    protocols: Sequence[Protocol], published: Published, paper_metric: str, fit: Fit
) -> list[str]:
    """Means with the published number in brackets, without a leading zero, of every model."""
    cells = []
    for protocol in protocols:
        for model in protocol.models:
            metric = OUR_METRICS.get(paper_metric, paper_metric)
            spread = protocol.spread(metric, fit, model)
            found = published.find(paper_metric, *fit[:2], protocol.dataset, model)
            text = "" if spread is None else f"{spread.mean:.4f}".removeprefix("0")
            if text and found is not None:
                text += f" ({f'{found:.4f}'.removeprefix('0')})"
            cells.append(text)
    return cells


def _p_value(p: float) -> str:
    """A p-value in words; "-" where it is not defined."""
    return "-" if math.isnan(p) else f"p = {p:.2g}"
