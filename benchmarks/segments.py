"""Maps by segment against one map and, where it is installed, MCGrad: log loss and time.

    python benchmarks/segments.py [rows] [segments]

The world is synthetic: log odds differ by segment with standard deviation 0.7, and segments have
sizes like those of countries or items (Zipf). Half of the rows are for evaluation. The last lines
compare the time of the fit by segment with that of the plain fit, on the same arrays.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

import calibrank as cr
from calibrank.metrics import multicalibration_test


def world(rows: int, segments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels, segments and true probabilities."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, segments + 1)
    segment = rng.choice(segments, rows, p=shares / shares.sum())
    shift = rng.normal(0, 0.7, segments)[segment]
    scores = rng.normal(size=rows)
    truth = 1 / (1 + np.exp(-(1.2 * scores - 2 + shift)))
    return scores, (rng.random(rows) < truth).astype(float), segment, truth


def timed(function: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """What a function returns, and the seconds it took."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


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
        fitted = cr.Segments("segment").fit(scores[fit], labels[fit], {"segment": segment[fit]})
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


if __name__ == "__main__":
    main(*[int(argument) for argument in sys.argv[1:3]])
