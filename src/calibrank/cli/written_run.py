"""A run with probabilities, written to a file: by `calibrank rerank`, with judgements or a map."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Mask
from calibrank.cli.console import console, shown
from calibrank.search import Run


class Written(NamedTuple):
    """What of a run was written."""

    documents: int
    kept: int
    queries: int
    answered: int
    """Queries of which some document was written."""

    @classmethod
    def of(cls, run: Run, kept: Mask) -> "Written":
        """Count what is kept of a run."""
        queries = len(np.unique(run.queries))
        return cls(len(run), int(kept.sum()), queries, len(np.unique(run.queries[kept])))

    def print(self, out: Path) -> None:
        """Print how much was written, and where."""
        console.print(
            f"[bold]Wrote[/] {shown(out)}: {self.kept:,} of {self.documents:,} documents; "
            f"{self.answered:,} of {self.queries:,} queries get an answer.",
            highlight=False,
            soft_wrap=True,
        )
