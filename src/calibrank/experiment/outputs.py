"""Writes the tables, figures and summary of a reproduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrank._internal.atomic import write_atomic
from calibrank.experiment.figures import Figures
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import (
    DATASET_TITLES,
    Comparison,
    Published,
    Reasons,
    agreement_line,
)
from calibrank.experiment.scored import Scored
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results
from calibrank.experiment.tables import dataset_page, summary_page

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
        return agreement_line(self.compared).replace("**", "")


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
        write_atomic(path, dataset_page(dataset, specs, results, published))
        tables.append(path)
        for spec in specs:
            protocol = Protocol.of(results, spec, dataset, spec.splits[0])
            if protocol.models:
                drawn = Figures(protocol, scored.get(spec.name, {}))
                figures += drawn.save(out / dataset / "figures" / spec.name)
    protocols = _paper_protocols(specs, results)
    compared: list[Comparison] = []
    for protocol in protocols:
        compared += published.compare(protocol)
    summary = out / "summary.md"
    write_atomic(summary, summary_page(protocols, published, compared, Reasons.beside(folder)))
    return Outputs(tuple(tables), tuple(figures), summary, tuple(compared))


def _paper_protocols(specs: Sequence[Spec], results: Results) -> list[Protocol]:
    """For each dataset, the first spec that follows the paper, on the released split."""
    protocols = []
    # In the order of the paper's tables; other datasets follow.
    present = results.distinct("dataset")
    known = [name for name in DATASET_TITLES if name in present]
    following = [spec for spec in specs if "released" in spec.splits]
    for dataset in dict.fromkeys([*known, *present]):
        found = [Protocol.of(results, spec, dataset, "released") for spec in following]
        protocols += [protocol for protocol in found if protocol.models][:1]
    return protocols
