"""How many random labels: anchoring against fits on the labels alone and recalibrated log odds.

`python benchmarks/anchor.py results/coat/cells/coat-random-*-0.npz`, on scores that
`calibrank reproduce` saved. Labels are drawn from the test set and everything is evaluated on the
rest of it. Prints the mean log loss and ECE over the draws, and by how many paired standard errors
anchoring is worse than the best alternative (negative: better).
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

import calibrank as cr

SIZES = (30, 100, 300, 1_000, 3_000, 10_000)
MAX_EVALUATED = 200_000
MAX_POPULATION = 4_000
METRICS = (cr.LogLoss(), cr.ECE())
COLUMNS = (
    "k",
    "limit",
    "Platt",
    "Gaussian",
    "slope + intercept",
    "anchor",
    "worse by (log loss, ECE)",
)


def alternatives(
    biased: cr.CalibrationMap,
    scores: np.ndarray,
    labels: np.ndarray,
    new_scores: np.ndarray,
) -> dict[str, np.ndarray]:
    """Probabilities of other methods; where a fit does not exist, the rate of the labels."""
    log_odds = biased.log_odds(scores)
    new_log_odds = biased.log_odds(new_scores)
    fits = {
        "Platt": (cr.Platt(), scores, new_scores),
        "Gaussian": (cr.Gaussian(), scores, new_scores),
        "slope + intercept": (cr.Platt(), log_odds, new_log_odds),
    }
    rate = (labels.sum() + 0.5) / (len(labels) + 1)
    probabilities = {}
    for name, (method, inputs, new_inputs) in fits.items():
        try:
            probabilities[name] = method.fit(inputs, labels).predict(new_inputs)
        except cr.CalibrankError:
            probabilities[name] = np.full(len(new_scores), rate)
    return probabilities


def fit_biased(arrays: dict[str, np.ndarray]) -> cr.CalibrationMap:
    labels = arrays["pair_labels"].astype(float)
    evidence = cr.ips(labels, arrays["propensity"], weights=arrays["weights"])
    return cr.Gaussian().fit(arrays["pair_scores"].astype(float), evidence)


class Experiment:
    """The test set of one model, a biased fit, and the random draws of labels."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as saved:
            arrays = {name: saved[name] for name in saved.files}
        self.name = path.stem
        self.scores = arrays["test_scores"].astype(float)
        self.labels = arrays["test_labels"].astype(float)
        self.biased = fit_biased(arrays)
        self.rng = np.random.default_rng(0)
        order = self.rng.permutation(len(self.scores))
        self.population = self.scores[order[:MAX_POPULATION]]

    def draw(self, size: int) -> dict[str, list[float]]:
        """The metrics of each method after one draw of labels."""
        order = self.rng.permutation(len(self.scores))
        shown = order[:size]
        rest = order[size : size + MAX_EVALUATED]
        scores = self.scores[shown]
        labels = self.labels[shown]
        probabilities = alternatives(self.biased, scores, labels, self.scores[rest])
        anchored = cr.anchor(self.biased, scores, labels, population=self.population)
        probabilities["anchor"] = anchored.predict(self.scores[rest])
        values = {}
        for name, predicted in probabilities.items():
            values[name] = [metric(predicted, self.labels[rest]) for metric in METRICS]
        return values

    def print_table(self, draws: int) -> None:
        """One line per number of labels."""
        rate = self.labels.mean()
        predicted = self.biased.predict(self.scores)
        log_loss, ece = [metric(predicted, self.labels) for metric in METRICS]
        print(f"\n{self.name}: {rate:.1%} positive")
        print(f"biased fit alone: log loss {log_loss:.4f}, ECE {ece:.4f}")
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for size in SIZES:
            if size > 0.7 * len(self.scores):
                break
            rows = [self.draw(size) for _ in range(draws)]
            table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
            # The mean absolute sampling error of a rate over this many labels.
            limit = 0.8 * np.sqrt(rate * (1 - rate) / size)
            means = [values.mean(axis=0) for values in table.values()]
            cells = [f"{log_loss:.4f} / {ece:.4f}" for log_loss, ece in means]
            worse = f"{standard_errors_behind(table, 0):+.1f}, "
            worse += f"{standard_errors_behind(table, 1):+.1f}"
            print(f"| {size:,} | {limit:.4f} | {' | '.join(cells)} | {worse} |", flush=True)


def standard_errors_behind(table: dict[str, np.ndarray], metric: int) -> float:
    """Paired standard errors by which anchoring is worse than the best alternative."""
    others = [values[:, metric] for name, values in table.items() if name != "anchor"]
    best = min(others, key=np.mean)
    differences = table["anchor"][:, metric] - best
    standard_error = differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean() / standard_error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", cr.FlatMapWarning)
    for path in options.files:
        Experiment(path).print_table(options.draws)


if __name__ == "__main__":
    main()
