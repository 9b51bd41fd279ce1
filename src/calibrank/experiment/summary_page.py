"""One page on all datasets of a reproduction, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from calibrank.experiment.agreement import (
    Reasons,
    agreement_line,
    agreement_table,
    compare,
    outside_table,
)
from calibrank.experiment.markdown import header, line, short_cell
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import (
    DATASET_TITLES,
    OUR_METRICS,
    PUBLISHED_ROWS,
    RANKING_NAMES,
    TABLE_TITLES,
    Fit,
    Published,
)
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results
from calibrank.experiment.tables import uerm_table


def paper_protocols(specs: Sequence[Spec], results: Results) -> list[Protocol]:
    """For each dataset, the first spec that follows the paper, on the released split."""
    protocols = []
    # In the order of the paper's tables; other datasets follow.
    present = results.distinct("dataset")
    known = [name for name in DATASET_TITLES if name in present]
    for dataset in dict.fromkeys([*known, *present]):
        for spec in specs:
            if "released" not in spec.splits:
                continue
            protocol = Protocol.of(results, spec, dataset, "released")
            if protocol.models:
                protocols.append(protocol)
                break
    return protocols


def summary_page(protocols: Sequence[Protocol], published: Published, reasons: Reasons) -> str:
    """How many published numbers are met, which are not, and the tables side by side."""
    compared = []
    for protocol in protocols:
        compared += compare(protocol, published)
    parts = ["# All datasets\n"]
    if compared:
        parts += [agreement_line(compared) + "\n", agreement_table(compared)]
        parts += ["## What is outside\n", outside_table(compared, reasons)]
    for paper_metric in TABLE_TITLES:
        parts.append(_side_by_side(protocols, published, paper_metric))
    parts.append(_ranking(protocols, published))
    for protocol in protocols:
        title = DATASET_TITLES.get(protocol.dataset, protocol.dataset)
        parts += [f"## UERM and the naive loss, {title}\n", uerm_table(protocol, published)]
    return "\n".join(parts)


def _side_by_side(protocols: Sequence[Protocol], published: Published, paper_metric: str) -> str:
    lines = [f"## {TABLE_TITLES[paper_metric]}: ours (published)\n", _header(protocols)]
    for group, method, loss in PUBLISHED_ROWS:
        cells = []
        for protocol in protocols:
            for model in protocol.models:
                spread = protocol.spread(OUR_METRICS[paper_metric], Fit(method, loss), model)
                number = published.find(paper_metric, method, loss, protocol.dataset, model)
                cells.append(short_cell(spread, number))
        lines.append(line([f"{method} ({group})", *cells]))
    return "\n".join(lines) + "\n"


def _ranking(protocols: Sequence[Protocol], published: Published) -> str:
    lines = ["## Table 3: ranking accuracy: ours (published)\n", _header(protocols)]
    for metric in RANKING_NAMES:
        cells = []
        for protocol in protocols:
            for model in protocol.models:
                number = published.find(metric, "", "", protocol.dataset, model)
                cells.append(short_cell(protocol.ranking(metric, model), number))
        lines.append(line([metric, *cells]))
    return "\n".join(lines) + "\n"


def _header(protocols: Sequence[Protocol]) -> str:
    names = []
    for protocol in protocols:
        title = DATASET_TITLES.get(protocol.dataset, protocol.dataset)
        names += [f"{title} {model}" for model in protocol.models]
    return header(["", *names])
