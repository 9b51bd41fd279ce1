"""Writes the tables, figures and summary of a reproduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrank._internal.atomic import write_atomic
from calibrank.experiment.agreement import Comparison, Reasons, agreement_line, compare
from calibrank.experiment.figures import Figures
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import Published
from calibrank.experiment.scored import Scored
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results
from calibrank.experiment.summary_page import paper_protocols, summary_page
from calibrank.experiment.tables import write_tables

ScoredBySpec = Mapping[str, Mapping[str, Scored]]
"""The scores that figures are drawn from, by spec and model."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that were written, and how our numbers compare with the published ones."""

    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    summary: Path
    compared: tuple[Comparison, ...]

    @property
    def agreement(self) -> str:
        """The number of published numbers that are met; "" if none was published."""
        return agreement_line(self.compared).replace("**", "") if self.compared else ""


def write_outputs(
    folder: Path, specs: Sequence[Spec], results: Results, out: Path, scored: ScoredBySpec
) -> Outputs:
    """Write tables and figures for each dataset of the results, and one summary of them all.

    `folder` holds the specs and what was published; `scored` must be of the results' dataset.
    """
    published = Published.beside(folder)
    tables = []
    figures: list[Path] = []
    for dataset in results.distinct("dataset"):
        path = out / dataset / "tables.md"
        write_atomic(path, write_tables(dataset, specs, results, published))
        tables.append(path)
        for spec in specs:
            protocol = Protocol.of(results, spec, dataset, spec.splits[0])
            if protocol.models:
                drawn = Figures(protocol, scored.get(spec.name, {}))
                figures += drawn.save(out / dataset / "figures" / spec.name)
    protocols = paper_protocols(specs, results)
    compared: list[Comparison] = []
    for protocol in protocols:
        compared += compare(protocol, published)
    summary = out / "summary.md"
    write_atomic(summary, summary_page(protocols, published, Reasons.beside(folder)))
    return Outputs(tuple(tables), tuple(figures), summary, tuple(compared))
