"""A level per segment against one curve and, where it is installed, MCGrad: log loss and time.

    python benchmarks/segments.py [rows] [segments]
    python benchmarks/segments.py --speed [rows] [segments]
    python benchmarks/segments.py --predict

The world is synthetic: log odds differ by segment with standard deviation 0.7, and segments have
sizes like those of countries or items (Zipf). Half of the rows are for evaluation. The last lines
compare the time of the fit by segment with that of the plain fit, on the same arrays. With
--speed, only these two are timed, the best of three runs each: on arrays, and on a Parquet file.
With --predict, the processor time per row of a prediction with a level and with a smooth term is
compared with that of np.exp: a level is to take 11 to 23 ns, a smooth term at most 10 ns.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrank as cr
from calibrank._internal.threads import in_workers, thread_count
from calibrank.metrics import multicalibration_test
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

RUNS = 3
MODEL = cr.Gaussian() + cr.Level("segment")


def world(rows: int, segments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels, segments and true probabilities."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, segments + 1)
    segment = rng.choice(segments, rows, p=shares / shares.sum())
    shift = rng.normal(0, 0.7, segments)[segment]
    scores = rng.normal(size=rows)
    truth = 1 / (1 + np.exp(-(1.2 * scores - 2 + shift)))
    return scores, (rng.random(rows) < truth).astype(float), segment, truth


def timed(
    function: Callable[[], np.ndarray], clock: Callable[[], float] = time.perf_counter
) -> tuple[np.ndarray, float]:
    """What a function returns, and the seconds it took."""
    start = clock()
    result = function()
    return result, clock() - start


def loss(truth: np.ndarray, p: np.ndarray) -> float:
    """Expected log loss under the true probabilities."""
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())


def main(rows: int = 400_000, segments: int = 200) -> None:
    """Print one line per method."""
    scores, labels, segment, truth = world(rows, segments)
    fit, test = slice(0, rows // 2), slice(rows // 2, None)
    by = {"segment": segment[test]}

    def one_map() -> np.ndarray:
        return cr.Gaussian().fit(scores[fit], labels[fit]).predict(scores[test])

    def by_segment() -> np.ndarray:
        fitted = MODEL.fit(scores[fit], labels[fit], {"segment": segment[fit]})
        return fitted.predict(scores[test], by)

    def mcgrad() -> np.ndarray:
        import pandas as pd
        from mcgrad import methods

        fitted = cr.Gaussian().fit(scores[fit], labels[fit])
        frame = pd.DataFrame({"p": fitted.predict(scores), "y": labels, "segment": segment})
        peer = methods.MCGrad()
        columns = {"prediction_column_name": "p", "categorical_feature_column_names": ["segment"]}
        peer.fit(df_train=frame[: rows // 2], label_column_name="y", **columns)
        return np.asarray(peer.predict(df=frame[rows // 2 :], **columns))

    best = loss(truth[test], truth[test])
    print(f"{rows:,} rows, {segments:,} segments; log loss of the truth {best:.5f}")
    seconds = {}
    for method in (one_map, by_segment, mcgrad):
        try:
            p, seconds[method.__name__] = timed(method)
        except ImportError:
            print(f"{method.__name__:12s} not installed")
            continue
        name = method.__name__
        found = multicalibration_test(p, labels[test], by)
        print(
            f"{name:12s} log loss {loss(truth[test], p):.5f}, {seconds[name]:.2f} s, "
            f"multicalibration error {found.error:.5f} (p = {found.p_value:.3f})"
        )
    print(
        f"time of the fit by segment / plain fit: {seconds['by_segment'] / seconds['one_map']:.1f}"
    )


def large_table(rows: int, segments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and segments of unequal size, in small types: 1e8 rows take 0.9 GB."""
    rng = np.random.default_rng(0)
    cumulative = np.cumsum(1 / np.arange(1, segments + 1))
    scores = np.empty(rows, dtype=np.float32)
    labels = np.empty(rows, dtype=np.int8)
    segment = np.empty(rows, dtype=np.int32)
    shift = rng.normal(0, 0.7, segments)
    for start in range(0, rows, 2**20):
        block = slice(start, min(start + 2**20, rows))
        size = block.stop - start
        segment[block] = np.searchsorted(cumulative / cumulative[-1], rng.random(size))
        scores[block] = rng.standard_normal(size, dtype=np.float32)
        z = 1.2 * scores[block] - 2 + shift[segment[block]]
        labels[block] = rng.random(size) < 1 / (1 + np.exp(-z))
    return scores, labels, segment


def write_parquet(path: Path, rows: int, segments: int) -> None:
    """Write a table with the segment as a number, as a category, and as short and long text.

    Parquet stores text with a dictionary of at most 1 MB per row group, and the rest of the rows
    row by row: all of the short texts fit, and two thirds of the long ones.
    """
    scores, labels, segment = large_table(rows, segments)
    names = pa.array([f"segment {number}" for number in range(segments)])
    short = pa.array([f"{number:x}" for number in range(segments)])
    writer = None
    for start in range(0, rows, 2**20):
        block = slice(start, start + 2**20)
        number = pa.array(segment[block])
        category = pa.DictionaryArray.from_arrays(number, names)
        columns = {
            "score": pa.array(scores[block]),
            "label": pa.array(labels[block]),
            "number": number,
            "category": category,
            "short_text": pa.DictionaryArray.from_arrays(number, short).cast(pa.string()),
            "long_text": category.cast(pa.string()),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def compare_times(names: Sequence[str], functions: Sequence[Callable[[], object]]) -> None:
    """Print the best time of each function over that of the first, by both clocks."""
    seconds = []
    for name, function in zip(names, functions, strict=True):
        walls, processors = [], []
        # The first run also loads modules and asks the system for memory.
        for _ in range(RUNS):
            wall, processor = time.perf_counter(), time.process_time()
            function()
            walls.append(time.perf_counter() - wall)
            processors.append(time.process_time() - processor)
        wall, processor = min(walls), min(processors)
        seconds.append((wall, processor))
        print(
            f"{name:20s} {wall:6.2f} s ({wall / seconds[0][0]:.1f} times plain), "
            f"processor {processor:6.2f} s ({processor / seconds[0][1]:.1f} times)",
            flush=True,
        )


def speed_of_arrays(rows: int, segments: int) -> None:
    """Print the times of a plain fit and of one by segment, of arrays."""
    scores, labels, segment = large_table(rows, segments)

    def plain() -> object:
        return cr.Gaussian().fit(scores, labels)

    def by_segment() -> object:
        return MODEL.fit(scores, labels, {"segment": segment})

    compare_times(["arrays, plain", "by segment"], [plain, by_segment])


def speed_of_files(rows: int, segments: int) -> None:
    """Print the times of a plain fit and of those by segment, of a Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_parquet(path, rows, segments)
        table = Table.find(str(path))

        def fit(by: str | None) -> object:
            columns = Columns("score", "label", cr.naive, segments=() if by is None else (by,))
            found = aggregate(table, columns, Rules(skip=False))
            fitted = cr.Gaussian().fit_summary(found.summary)
            if by is None:
                return fitted
            return (cr.Gaussian() + cr.Level(by)).fit_sums(fitted, found.segments)

        def read(column: str) -> None:
            tasks = table.read_tasks(("score", "label", column), None, (column,))
            in_workers(lambda _, task: task(), tasks, thread_count())

        columns = (None, "number", "category", "short_text", "long_text")
        names = ["Parquet, plain", *[f"by {column}" for column in columns[1:]], "reading long_text"]
        # What Arrow alone takes: no fit by that column can take less.
        last = partial(read, "long_text")
        compare_times(names, [*[partial(fit, column) for column in columns], last])


def speed(rows: int = 10_000_000, segments: int = 100_000) -> None:
    """Print the times of fits with many rows and segments."""
    print(f"{rows:,} rows, {segments:,} segments")
    speed_of_arrays(rows, segments)
    speed_of_files(rows, segments)


def predictions() -> None:
    """Print the processor time per row of np.exp, of a curve, and of a level and a smooth term."""
    scores, labels, segment, _ = world(20_000, 200)
    rows = {"segment": segment, "price": np.random.default_rng(1).normal(size=20_000)}
    plain = cr.Gaussian().fit(scores, labels)
    level = MODEL.fit(scores, labels, rows)
    smooth = (cr.Gaussian() + cr.Smooth("price")).fit(scores, labels, rows)
    print("ns per row | np.exp | curve | curve + level | curve + smooth")
    for size in (10_000, 100_000, 1_000_000):
        many = np.resize(scores, size)
        columns = {name: np.resize(values, size) for name, values in rows.items()}
        functions = [
            partial(np.exp, many),
            partial(plain.predict, many),
            partial(level.predict, many, columns),
            partial(smooth.predict, many, columns),
        ]
        best = []
        for function in functions:
            runs = [timed(function, time.process_time)[1] for _ in range(10 * RUNS)]
            best.append(min(runs))
        print(f"{size:9,d}", *[f"{1e9 * each / size:6.1f}" for each in best])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--predict"]:
        predictions()
    elif sys.argv[1:2] == ["--speed"]:
        speed(*[int(float(argument)) for argument in sys.argv[2:4]])
    else:
        main(*[int(argument) for argument in sys.argv[1:3]])
