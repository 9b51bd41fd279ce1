"""Markdown tables of a reproduction: our numbers with intervals beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calibrank.experiment.agreement import agreement_line, compare
from calibrank.experiment.markdown import header, line, p_value, result_cell
from calibrank.experiment.negatives import nearest_negatives, rule_table
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import (
    COMPETITORS,
    LOSS_SUFFIXES,
    OUR_METRICS,
    PARAMETRIC,
    PROPOSED,
    PUBLISHED_ROWS,
    RANKING_NAMES,
    TABLE_TITLES,
    Fit,
    Published,
)
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread

FURTHER_ROWS = (
    ("not in the paper", "GammaGaussian", "naive"),
    ("not in the paper", "GammaGaussian", "ips"),
    ("not in the paper", "Temperature", "ips"),
    ("not in the paper", "Isotonic", "ips"),
)
_LEGEND = (
    "Mean over seeds ± half its 95% interval (published number, difference); "
    "best of a column in bold.\n"
)


@dataclass(frozen=True, slots=True, eq=False)
class TableWriter:
    """Writes the tables of one dataset under one spec and split."""

    protocol: Protocol
    published: Published

    def all(self) -> Iterator[str]:
        """Every table that has a counterpart in the paper."""
        spec = self.protocol.spec
        yield f"## {spec.title}\n\n{spec.why.strip()}\n"
        yield f"{self._negatives()} {spec.why_negatives.strip()}\n"
        # The paper's numbers are for the released split only.
        if self.protocol.split == "released":
            compared = compare(self.protocol, self.published)
            if compared:
                yield agreement_line(compared) + "\n"
        for paper_metric in TABLE_TITLES:
            yield self.calibration(paper_metric)
        yield uerm_table(self.protocol, self.published)
        yield self.ranking()
        if spec.sweep:
            yield rule_table(self.protocol)
        if spec.estimators:
            yield estimator_table(self.protocol)

    def calibration(self, paper_metric: str) -> str:
        """A table like the paper's Table 1."""
        metric = OUR_METRICS[paper_metric]
        models = self.protocol.models
        title = TABLE_TITLES[paper_metric]
        lines = [f"### {title}\n", header(["", "method", *models])]
        # Only methods of the paper compete for the bold number.
        best = {model: self._best_published(metric, model) for model in models}
        for row in (*PUBLISHED_ROWS, *FURTHER_ROWS):
            group, method, loss = row
            cells = []
            for model in models:
                spread = self.protocol.spread(metric, Fit(method, loss), model)
                published = self._find(paper_metric, method, loss, model)
                cells.append(result_cell(spread, published, bold=best[model] == (method, loss)))
            if any(cells):
                name = method + LOSS_SUFFIXES[loss] if row in FURTHER_ROWS else method
                lines.append(line([group, name, *cells]))
        improvements = [self._improvement(paper_metric, model) for model in models]
        tests = [self._paired_test(metric, model) for model in models]
        lines.append(line(["", "improvement", *improvements]))
        lines.append(line(["", "paired test", *tests]))
        return "\n".join(lines) + "\n"

    def ranking(self) -> str:
        """A table like the paper's Table 3."""
        models = self.protocol.models
        lines = ["### Table 3: ranking accuracy\n", header(["metric", *models])]
        for metric in RANKING_NAMES:
            cells = []
            for model in models:
                spread = self.protocol.ranking(metric, model)
                cells.append(result_cell(spread, self._find(metric, "", "", model)))
            lines.append(line([metric, *cells]))
        return "\n".join(lines) + "\n"

    def _negatives(self) -> str:
        spec = self.protocol.spec
        counts = {loss: spec.negatives_for(self.protocol.dataset, loss) for loss in spec.losses}
        if not any(counts.values()):
            return "Negatives per held-out positive: as many as represent all unobserved pairs."
        words = [f"{count}{LOSS_SUFFIXES[loss]}" for loss, count in counts.items()]
        if len(set(counts.values())) == 1:
            words = [str(next(iter(counts.values())))]
        return f"Negatives per held-out positive: {'; '.join(words)}."

    def _find(self, metric: str, method: str, loss: str, model: str) -> float | None:
        return self.published.find(metric, method, loss, self.protocol.dataset, model)

    def _best_published(self, metric: str, model: str) -> Fit | None:
        fits = [Fit(method, loss) for _, method, loss in PUBLISHED_ROWS]
        return _lowest(self.protocol, metric, fits, model)

    def _compared(self, metric: str, model: str) -> tuple[Fit, Fit] | None:
        """The best proposed method and the best competitor, both with UERM."""
        proposed = [Fit(method, "ips") for method in PROPOSED]
        competitors = [Fit(method, "ips") for method in COMPETITORS]
        ours = _lowest(self.protocol, metric, proposed, model)
        theirs = _lowest(self.protocol, metric, competitors, model)
        return None if ours is None or theirs is None else (ours, theirs)

    def _improvement(self, paper_metric: str, model: str) -> str:
        """How much lower the best proposed method is than the best competitor (published)."""
        metric = OUR_METRICS[paper_metric]
        compared = self._compared(metric, model)
        if compared is None:
            return ""
        ours, theirs = [self._mean(metric, fit, model) for fit in compared]
        text = f"{1 - ours / theirs:+.1%}" if theirs else ""
        proposed = [self._find(paper_metric, method, "ips", model) for method in PROPOSED]
        competitors = [self._find(paper_metric, method, "ips", model) for method in COMPETITORS]
        if None in proposed or None in competitors:
            return text
        published = 1 - _minimum(proposed) / _minimum(competitors)
        return f"{text} ({published:+.1%})"

    def _paired_test(self, metric: str, model: str) -> str:
        compared = self._compared(metric, model)
        if compared is None:
            return ""
        ours, theirs = compared
        p = self.protocol.paired_p(metric, ours, theirs, model)
        return f"{ours.method} against {theirs.method}: {p_value(p)}"

    def _mean(self, metric: str, fit: Fit, model: str) -> float:
        spread = self.protocol.spread(metric, fit, model)
        return float("nan") if spread is None else spread.mean


def write_tables(
    dataset: str, specs: Sequence[Spec], results: Results, published: Published
) -> str:
    """Every table of a dataset, spec by spec."""
    protocols = [Protocol.of(results, spec, dataset, spec.splits[0]) for spec in specs]
    protocols = [protocol for protocol in protocols if protocol.models]
    seeds = max((protocol.seeds for protocol in protocols), default=0)
    parts = [f"# {dataset}, {seeds} seeds\n", _LEGEND]
    for protocol in protocols:
        parts += TableWriter(protocol, published).all()
        parts.append(split_and_loss_table(results, protocol.spec, dataset))
    return "\n".join(part for part in parts if part)


def uerm_table(protocol: Protocol, published: Published) -> str:
    """How much UERM lowers the ECE of each parametric method, with a paired test.

    The paper's claim is 7.40% to 76.52% "for all parametric methods".
    """
    models = protocol.models
    changes: list[float] = []
    rows = []
    for method in PARAMETRIC:
        cells = []
        for model in models:
            change = _change(protocol, method, model)
            changes += [] if change is None else [change]
            cells.append(_change_cell(protocol, published, method, model, change))
        rows.append(line([method, *cells]))
    if not changes:
        return ""
    title = (
        "### How much lower the ECE is with UERM than with the naive loss: "
        f"{min(changes):+.1%} to {max(changes):+.1%} (claimed: +7.4% to +76.5%)\n"
    )
    return "\n".join([title, header(["", *models]), *rows]) + "\n"


def estimator_table(protocol: Protocol) -> str:
    """ECE by propensity estimator: with UERM's number of negatives, and with each one's own."""
    title = (
        "### ECE by propensity estimator, Gaussian with UERM: with the same number of negatives; "
        "with the number that the rule gives for the estimator\n"
    )
    models = protocol.models
    lines = [title, header(["estimator", "its own number", *models])]
    fit = Fit("Gaussian", "ips")
    for name in ("popularity", *protocol.spec.estimators):
        own = nearest_negatives(protocol, "ips", name)
        cells = []
        for model in models:
            same = protocol.spread("ECE", fit, model, propensity=name)
            texts = ["failed" if same is None else f"{same.mean:.4f}"]
            if own is not None:
                best = protocol.spread("ECE", fit, model, propensity=name, negatives=own.count)
                texts.append("" if best is None else f"{best.mean:.4f}")
            cells.append("; ".join(texts))
        count = "none" if own is None else str(own.count)
        if protocol.tried_negatives("ips", name):
            lines.append(line([name.replace("_", " "), count, *cells]))
    return "\n".join(lines) + "\n"


def split_and_loss_table(results: Results, spec: Spec, dataset: str) -> str:
    """A table that the paper does not have: the Gaussian method by split and loss."""
    title = (
        "### Gaussian by split and loss: ECE; mean prediction over the true base rate; "
        "ECE of each user's top 5\n"
    )
    lines = [title, header(["split", "loss", *spec.models])]
    for split in spec.splits:
        protocol = Protocol.of(results, spec, dataset, split)
        for loss in spec.losses:
            cells = [
                _three_metrics(protocol, Fit("Gaussian", loss), model) for model in spec.models
            ]
            if any(cells):
                lines.append(line([split, loss, *cells]))
    return "\n".join(lines) + "\n"


def _three_metrics(protocol: Protocol, fit: Fit, model: str) -> str:
    ece = protocol.spread("ECE", fit, model)
    in_the_large = protocol.spread("CalibrationInTheLarge", fit, model)
    top = protocol.spread("ECE@5", fit, model)
    if ece is None or in_the_large is None or top is None:
        return ""
    return f"{ece.mean:.4f}; {in_the_large.mean:.2f}; {top.mean:.4f}"


def _change(protocol: Protocol, method: str, model: str) -> float | None:
    """1 - ECE with UERM / ECE with the naive loss."""
    naive = protocol.spread("ECE", Fit(method, "naive"), model)
    unbiased = protocol.spread("ECE", Fit(method, "ips"), model)
    return None if naive is None or unbiased is None else 1 - unbiased.mean / naive.mean


def _change_cell(
    protocol: Protocol, published: Published, method: str, model: str, change: float | None
) -> str:
    if change is None:
        return ""
    p = protocol.paired_p("ECE", Fit(method, "ips"), Fit(method, "naive"), model)
    text = f"{change:+.1%}, {p_value(p)}"
    naive = published.find("ECE", method, "naive", protocol.dataset, model)
    unbiased = published.find("ECE", method, "ips", protocol.dataset, model)
    if naive is None or unbiased is None:
        return text
    return f"{text} ({1 - unbiased / naive:+.1%})"


def _lowest(protocol: Protocol, metric: str, fits: Sequence[Fit], model: str) -> Fit | None:
    """The fit with the lowest mean."""
    means: dict[Fit, float] = {}
    for fit in fits:
        spread: Spread | None = protocol.spread(metric, fit, model)
        if spread is not None:
            means[fit] = spread.mean
    return min(means, key=lambda fit: means[fit]) if means else None


def _minimum(values: Sequence[float | None]) -> float:
    return min(value for value in values if value is not None)
