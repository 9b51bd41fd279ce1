"""Summarize dataframes: pandas, polars (also lazy), pyarrow, DuckDB, and iterators of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import listed, shown, text
from calibrank._internal.validation import as_frame
from calibrank.errors import DataError
from calibrank.evidence import EvidenceFunction, evidence_function, make_evidence
from calibrank.summary import Summary, SummaryBuilder


def summarize(
    frames: Any,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
    evidence: EvidenceFunction | None = None,
) -> Summary:
    """Pool a dataframe, or an iterator of dataframes or Arrow batches, one batch at a time.

    `evidence` is one of `naive`, `ips`, `positive_ips` and `impressions`; by default `ips` with a
    propensity column and `naive` without one. Only the named columns are read; a lazy frame is
    collected with these columns alone.

    >>> import pyarrow as pa
    >>> table = pa.table({"score": [0.1, 0.5, 0.5, 0.9], "label": [0, 0, 1, 1]})
    >>> summarize(table.to_batches(max_chunksize=2))
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """
    given = {"score": score, "label": label, "propensity": propensity, "weight": weight}
    names = {}
    for role, name in given.items():
        if name is not None or role in ("score", "label"):
            names[role] = text(role, name, "It names a column.")
    builder = SummaryBuilder()
    function = evidence_function(evidence, propensity)
    whole = _wrapped(frames)
    batches = frames if whole is None and isinstance(frames, Iterable) else [frames]
    for batch in batches:
        frame = _wrapped(batch)
        if frame is None:
            kind = type(batch).__name__
            raise DataError("frames", "be dataframes or an iterator of them", kind)
        columns = _columns(frame, names)
        if len(columns["score"]):
            made = make_evidence(
                function, columns["label"], columns.get("propensity"), columns.get("weight")
            )
            builder.update(columns["score"], made)
    return builder.summary()


def _wrapped(frame: Any) -> Any:
    """A frame of narwhals; None if it is not a frame."""
    if type(frame).__name__ == "RecordBatch":
        # Whoever has a batch has already imported pyarrow.
        import pyarrow as pa  # noqa: PLC0415  (loaded already)

        frame = pa.Table.from_batches([frame])
    return as_frame(frame)


def _columns(frame: Any, names: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    available = frame.collect_schema().names()
    for name in names.values():
        if name not in available:
            rule, remedy = f"have a column {shown(name)}", "Name it, e.g. score='x'."
            raise DataError("frame", rule, listed(available), remedy)
    eager = frame.select(list(dict.fromkeys(names.values()))).lazy().collect()
    return {role: np.asarray(eager[name].to_numpy()) for role, name in names.items()}
