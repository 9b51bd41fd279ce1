"""Summaries of dataframes: pandas, polars (lazy too), pyarrow, duckdb, and any iterator of such batches."""

from collections.abc import Iterable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError
from calibrank.evidence import ips, naive
from calibrank.summary import Summary, SummaryBuilder


def summarize(
    frames: Any,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
) -> Summary:
    """Pool a dataframe, or an iterator of dataframes or Arrow batches, a batch at a time.

    With a propensity column the evidence is `ips`, otherwise `naive`. Only the named columns are read; a lazy frame
    is collected with these alone.

    >>> import pyarrow as pa
    >>> batches = pa.table({"score": [0.1, 0.5, 0.5, 0.9], "label": [0, 0, 1, 1]}).to_batches(max_chunksize=2)
    >>> summarize(batches)
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """
    builder = SummaryBuilder()
    names = [name for name in (score, label, propensity, weight) if name is not None]
    for frame in _each(frames):
        columns = _columns(frame, names)
        weights = None if weight is None else columns[weight]
        if propensity is None:
            evidence = naive(columns[label], weights=weights)
        else:
            evidence = ips(columns[label], columns[propensity], weights=weights)
        if len(columns[score]):
            builder.update(columns[score], evidence)
    return builder.summary()


def _each(frames: Any) -> Iterator[Any]:
    wrapped = _wrap(frames)
    if wrapped is not None:
        yield wrapped
    elif isinstance(frames, Iterable):
        for frame in frames:
            wrapped = _wrap(frame)
            if wrapped is None:
                raise _not_a_frame(frame)
            yield wrapped
    else:
        raise _not_a_frame(frames)


def _wrap(frame: Any) -> Any:
    """The frame as narwhals sees it, or None if it is not one."""
    if type(frame).__name__ == "RecordBatch":
        import pyarrow as pa  # noqa: PLC0415  (whoever has a batch has it loaded)

        frame = pa.Table.from_batches([frame])
    try:
        return nw.from_native(frame)
    except TypeError:
        return None


def _columns(frame: Any, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    have = frame.collect_schema().names()
    for name in names:
        if name not in have:
            raise DataError(
                f"frame must have a column {name!r}, got {', '.join(have)}. Name it, e.g. score='x'."
            )
    chosen = frame.select(names)
    eager = chosen.collect() if isinstance(chosen, nw.LazyFrame) else chosen
    return {name: np.asarray(eager[name].to_numpy()) for name in names}


def _not_a_frame(value: Any) -> DataError:
    return DataError(
        f"frames must be dataframes or an iterator of them, got {type(value).__name__}."
    )
