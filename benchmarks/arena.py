"""Anchoring against every method that people would use with k random labels.

`python benchmarks/arena.py scores/*.npz` on files that `benchmarks/arena_scores.py` writes. For
each file and each k, k random labels are drawn from the test set, every method is fitted, and all
are evaluated on other rows of the test set. Prints each method's mean excess log loss over the best
method of each cell (file and k), and the cells in which `anchor` is worse than the best of its
rivals, chosen afterwards, by more than two paired standard errors. The priors of `anchor` were
chosen on Coat and KuaiRec: figures on these two say nothing about other data.

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
Cells = dict[tuple[str, int], dict[str, np.ndarray]]
"""Log losses by file and number of labels, then by method: one per draw."""


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


def run_file(path: Path, draws: int) -> Cells:
    """Log losses of every method, one per draw, for each k."""
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
        rows: dict[str, list[float]] = {}
        for _ in range(draws):
            order = rng.permutation(len(scores))
            shown = order[:size]
            rest = order[size : size + EVALUATED]
            task = Task(biased, population, scores[shown], labels[shown], scores[rest])
            for name, method in methods().items():
                answer = predict(method, task)
                rows.setdefault(name, []).append(cr.LogLoss()(answer, labels[rest]))
        cells[path.stem, size] = {name: np.array(values) for name, values in rows.items()}
    return cells


def table(cells: Cells) -> Iterator[str]:
    """Mean excess log loss over the best method of each cell (1e-4), one line per method."""
    sizes = sorted({size for _, size in cells})
    excess: dict[str, list[float]] = {}
    for size in sizes:
        chosen = [cell for (_, cell_size), cell in cells.items() if cell_size == size]
        names = list(chosen[0])
        losses = np.array([[cell[name].mean() for name in names] for cell in chosen])
        means = (losses - losses.min(axis=1, keepdims=True)).mean(axis=0)
        for name, mean in zip(names, 1e4 * means, strict=True):
            excess.setdefault(name, []).append(mean)
    yield "| method | " + " | ".join(f"{size:,}" for size in sizes) + " |"
    yield "|---" * (1 + len(sizes)) + "|"
    for name, means in excess.items():
        yield f"| {name} | " + " | ".join(f"{mean:.2g}" for mean in means) + " |"


def worse_cells(cells: Cells) -> Iterator[str]:
    """Cells in which the best rival is better by more than two paired standard errors."""
    worse = []
    for (file, size), cell in cells.items():
        rivals = [name for name in cell if name != "anchor"]
        best = min(rivals, key=lambda rival: cell[rival].mean())
        apart = cell["anchor"] - cell[best]
        if apart.mean() > 2 * apart.std(ddof=1) / np.sqrt(len(apart)):
            worse.append(f"- {file}, {size:,} labels: {best} by {apart.mean():.5f}")
    count = f"{len(worse)} of {len(cells)} cells"
    yield f"\nanchor: worse than the best rival by two standard errors in {count}"
    yield from worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    cells: Cells = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for found in pool.map(run_file, options.files, [options.draws] * len(options.files)):
            cells |= found
    print("\n".join(table(cells)))
    print("\n".join(worse_cells(cells)))


if __name__ == "__main__":
    main()
