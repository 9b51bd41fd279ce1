"""Summarize dataframes: pandas, polars (also lazy), pyarrow, DuckDB, and iterators of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import listed, shown, text
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
    text("score", score, "It names a column.")
    text("label", label, "It names a column.")
    for role, name in (("propensity", propensity), ("weight", weight)):
        if name is not None:
            text(role, name, "It names a column.")
    builder = SummaryBuilder()
    function = evidence_function(evidence, propensity)
    names = [name for name in (score, label, propensity, weight) if name is not None]
    for frame in _wrapped_frames(frames):
        columns = _columns(frame, names)
        weights = None if weight is None else columns[weight]
        propensities = None if propensity is None else columns[propensity]
        if len(columns[score]):
            made = make_evidence(function, columns[label], propensities, weights)
            builder.update(columns[score], made)
    return builder.summary()


def _wrapped_frames(frames: Any) -> Iterator[Any]:
    """Wrap one frame, or each frame of an iterable, with narwhals."""
    wrapped = _wrap(frames)
    if wrapped is not None:
        yield wrapped
        return
    if not isinstance(frames, Iterable):
        raise _not_a_frame(frames)
    for frame in frames:
        wrapped = _wrap(frame)
        if wrapped is None:
            raise _not_a_frame(frame)
        yield wrapped


def _wrap(frame: Any) -> Any:
    """Wrap a frame with narwhals; None if it is not a frame."""
    if type(frame).__name__ == "RecordBatch":
        # Whoever has a batch has already imported pyarrow.
        import pyarrow as pa  # noqa: PLC0415  (loaded already)

        frame = pa.Table.from_batches([frame])
    try:
        return nw.from_native(frame)
    except TypeError:
        return None


def _columns(frame: Any, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    available = frame.collect_schema().names()
    for name in names:
        if name not in available:
            raise DataError(
                "frame",
                f"have a column {shown(name)}",
                listed(available),
                "Name it, e.g. score='x'.",
            )
    selected = frame.select(names)
    eager = selected.collect() if isinstance(selected, nw.LazyFrame) else selected
    return {name: np.asarray(eager[name].to_numpy()) for name in names}


def _not_a_frame(value: Any) -> DataError:
    kind = type(value).__name__
    return DataError("frames", "be dataframes or an iterator of them", kind)
