"""Anchoring against every method that people would use with k random labels.

`python benchmarks/arena.py scores/*.npz` on files that `benchmarks/arena_scores.py` writes. For
each file and each k, k random labels are drawn from the test set, every method is fitted, and all
are evaluated on other rows of the test set. Prints, by k, each method's mean rank in log loss, its
mean excess over the best method of each cell and its ECE; then the cells in which a method is worse
than the best of its rivals (chosen afterwards) by more than two paired standard errors.

Peers from PyPI take part where they are installed: scikit-learn, betacal, venn-abers, probcal and
netcal. `--processes 2` runs files side by side.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import calibrank as cr

SIZES = (30, 100, 300, 1_000, 3_000, 10_000)
POPULATION = 20_000
EVALUATED = 100_000
METRICS = (cr.LogLoss(), cr.ECE())
OURS = ("anchor",)


@dataclass(frozen=True)
class Task:
    """What every method gets: random labels, and the scores to predict."""

    biased: cr.CalibrationMap
    population: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    asked: np.ndarray

    def ranks(self, scores: np.ndarray) -> np.ndarray:
        """Ranks in the population, strictly between 0 and 1."""
        ordered = np.sort(self.population)
        middle = np.searchsorted(ordered, scores, "left") + np.searchsorted(
            ordered, scores, "right"
        )
        return np.clip(middle / (2 * len(ordered)), 0.5 / len(ordered), 1 - 0.5 / len(ordered))

    def constant(self) -> np.ndarray:
        """The rate of the labels, with half a label of each class added."""
        rate = (self.labels.sum() + 0.5) / (len(self.labels) + 1)
        return np.full(len(self.asked), rate)


Method = Callable[[Task], np.ndarray]


def on_labels(calibrator: cr.Calibrator) -> Method:
    """One of our calibrators, fitted on the random labels alone."""
    return lambda task: calibrator.fit(task.scores, task.labels).predict(task.asked)


def anchored(task: Task) -> np.ndarray:
    fitted = cr.anchor(task.biased, task.scores, task.labels, population=task.population)
    return fitted.predict(task.asked)


def slope_and_intercept(task: Task) -> np.ndarray:
    """Platt scaling of the biased fit's log odds."""
    fitted = cr.Platt().fit(task.biased.log_odds(task.scores), task.labels)
    return fitted.predict(task.biased.log_odds(task.asked))


def sigmoid(scores: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-scores))


def logistic(task: Task) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    scale = task.population.std() or 1.0
    fitted = LogisticRegression().fit(task.scores[:, None] / scale, task.labels)
    return fitted.predict_proba(task.asked[:, None] / scale)[:, 1]


def isotonic(task: Task) -> np.ndarray:
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(task.scores, task.labels)
    return fitted.predict(task.asked)


def beta(task: Task) -> np.ndarray:
    from betacal import BetaCalibration

    fitted = BetaCalibration("abm").fit(sigmoid(task.scores)[:, None], task.labels)
    return fitted.predict(sigmoid(task.asked)[:, None])


def beta_on_ranks(task: Task) -> np.ndarray:
    from probcal import BetaCalibrator

    fitted = BetaCalibrator().fit(task.ranks(task.scores), task.labels)
    return fitted.predict_proba(task.ranks(task.asked))


def venn_abers(task: Task) -> np.ndarray:
    from venn_abers import VennAbers

    def two_columns(scores: np.ndarray) -> np.ndarray:
        ranks = task.ranks(scores)
        return np.column_stack([1 - ranks, ranks])

    fitted = VennAbers()
    fitted.fit(two_columns(task.scores), task.labels)
    return fitted.predict_proba(two_columns(task.asked))[0][:, 1]


def histogram(task: Task) -> np.ndarray:
    from netcal.binning import HistogramBinning

    fitted = HistogramBinning(bins=10)
    fitted.fit(task.ranks(task.scores), task.labels.astype(int))
    return fitted.transform(task.ranks(task.asked))


def methods() -> dict[str, Method]:
    """Every method whose package is installed, by name."""
    found: dict[str, Method] = {
        "anchor": anchored,
        "constant": Task.constant,
        "slope + intercept": slope_and_intercept,
        "centred isotonic": on_labels(cr.CenteredIsotonic()),
        "Gaussian, labels alone": on_labels(cr.Gaussian()),
        "Spline, labels alone": on_labels(cr.Spline()),
    }
    peers: dict[str, tuple[str, Method]] = {
        "logistic (scikit-learn)": ("sklearn", logistic),
        "isotonic (scikit-learn)": ("sklearn", isotonic),
        "Beta (betacal)": ("betacal", beta),
        "Beta on ranks (probcal)": ("probcal", beta_on_ranks),
        "Venn-Abers (venn-abers)": ("venn_abers", venn_abers),
        "histogram (netcal)": ("netcal", histogram),
    }
    for name, (package, method) in peers.items():
        if find_spec(package) is not None:
            found[name] = method
    return found


def predict(method: Method, task: Task) -> np.ndarray:
    """The method's answer; the constant where it has none, as with labels of one class."""
    try:
        answer = np.asarray(method(task), dtype=np.float64).reshape(-1)
    except (cr.CalibrankError, ValueError, ZeroDivisionError, IndexError):
        return task.constant()
    return np.clip(np.where(np.isfinite(answer), answer, task.labels.mean()), 0, 1)


def run_file(path: Path, draws: int) -> dict[tuple[str, int], dict[str, np.ndarray]]:
    """Metrics of every method, one row per draw, for each k."""
    warnings.simplefilter("ignore")
    with np.load(path) as saved:
        arrays = {name: saved[name] for name in saved.files}
    scores = arrays["test_scores"].astype(float)
    labels = arrays["test_labels"].astype(float)
    evidence = cr.ips(
        arrays["pair_labels"].astype(float),
        arrays["propensity"].astype(float),
        weights=arrays["weights"].astype(float),
    )
    biased = cr.Gaussian().fit(arrays["pair_scores"].astype(float), evidence)
    rng = np.random.default_rng(0)
    population = scores[rng.permutation(len(scores))[:POPULATION]]
    cells = {}
    for size in SIZES:
        # Half of a small test set at least must be left to evaluate on.
        if size > 0.7 * len(scores):
            continue
        rows: dict[str, list[list[float]]] = {}
        for _ in range(draws):
            order = rng.permutation(len(scores))
            shown = order[:size]
            rest = order[size : size + EVALUATED]
            task = Task(biased, population, scores[shown], labels[shown], scores[rest])
            for name, method in methods().items():
                answer = predict(method, task)
                rows.setdefault(name, []).append(
                    [metric(answer, labels[rest]) for metric in METRICS]
                )
        cells[path.stem, size] = {name: np.array(values) for name, values in rows.items()}
    return cells


def table(cells: dict[tuple[str, int], dict[str, np.ndarray]], size: int) -> Iterator[str]:
    """One line per method: mean rank, mean excess log loss with standard error, mean ECE."""
    chosen = [cell for (_, cell_size), cell in cells.items() if cell_size == size]
    losses = np.array([[rows[:, 0].mean() for rows in cell.values()] for cell in chosen])
    errors = np.array([[rows[:, 1].mean() for rows in cell.values()] for cell in chosen])
    ranks = losses.argsort(axis=1).argsort(axis=1) + 1
    excess = losses - losses.min(axis=1, keepdims=True)
    yield f"\n## {size:,} random labels, {len(chosen)} pairs of model and dataset\n"
    yield "| method | mean rank | mean excess log loss | mean ECE |"
    yield "|---|---|---|---|"
    names = list(chosen[0])
    for column in np.argsort(ranks.mean(axis=0)):
        spread = excess[:, column].std(ddof=1) / np.sqrt(len(chosen)) if len(chosen) > 1 else 0.0
        yield (
            f"| {names[column]} | {ranks[:, column].mean():.1f} | "
            f"{excess[:, column].mean():.5f} +- {spread:.5f} | {errors[:, column].mean():.4f} |"
        )


def worse_cells(cells: dict[tuple[str, int], dict[str, np.ndarray]], ours: str) -> Iterator[str]:
    """Cells in which the best rival is better by more than two paired standard errors."""
    worse = []
    for (name, size), cell in cells.items():
        rivals = {rival: rows for rival, rows in cell.items() if rival not in OURS}
        best = min(rivals, key=lambda rival: rivals[rival][:, 0].mean())
        apart = cell[ours][:, 0] - rivals[best][:, 0]
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        if apart.mean() > 2 * error:
            worse.append(f"- {name}, {size:,} labels: {best} by {apart.mean():.5f}")
    count = f"{len(worse)} of {len(cells)} cells"
    yield f"\n{ours}: worse than the best rival by two standard errors in {count}"
    yield from worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    cells: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for found in pool.map(run_file, options.files, [options.draws] * len(options.files)):
            cells |= found
    for size in sorted({size for _, size in cells}):
        print("\n".join(table(cells, size)))
    for ours in OURS:
        print("\n".join(worse_cells(cells, ours)))


if __name__ == "__main__":
    main()
