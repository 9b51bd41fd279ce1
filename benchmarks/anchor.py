"""How many random labels: anchoring against fits on the labels alone and slope + intercept on the biased fit.

`python benchmarks/anchor.py results/coat/cells/coat-random-*-0.npz`, on scores that `calibrank reproduce` left. Labels
are drawn from the test set, everything is judged on the rest of it. Prints log loss and ECE, mean of the draws, and by
how many paired standard errors anchoring is worse than the best of the others (negative: better).
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

import calibrank as cr

SIZES = (30, 100, 300, 1_000, 3_000, 10_000)
JUDGED = 200_000
METRICS = (cr.LogLoss(), cr.ECE())


def rivals(
    biased: cr.CalibrationMap, scores: np.ndarray, labels: np.ndarray, new: np.ndarray
) -> dict[str, np.ndarray]:
    """What others would do; where a fit does not exist, the labels' own rate."""
    z, z_new = biased.log_odds(scores), biased.log_odds(new)
    fits = {
        "Platt": (cr.Platt(), scores, new),
        "Gaussian": (cr.Gaussian(), scores, new),
        "slope + intercept": (cr.Platt(), z, z_new),
    }
    constant = np.full(len(new), (labels.sum() + 0.5) / (len(labels) + 1))
    answers = {}
    for name, (method, seen, asked) in fits.items():
        try:
            answers[name] = method.fit(seen, labels).predict(asked)
        except cr.CalibrankError:
            answers[name] = constant
    return answers


def curve(path: Path, draws: int) -> None:
    with np.load(path) as saved:
        arrays = {name: saved[name] for name in saved.files}
    scores, labels = arrays["test_scores"].astype(float), arrays["test_labels"].astype(float)
    evidence = cr.ips(
        arrays["pair_labels"].astype(float), arrays["propensity"], weights=arrays["weights"]
    )
    biased = cr.Gaussian().fit(arrays["pair_scores"].astype(float), evidence)
    rng, rate = np.random.default_rng(0), labels.mean()
    population = scores[rng.permutation(len(scores))[:4_000]]
    before = [metric(biased.predict(scores), labels) for metric in METRICS]
    print(
        f"\n{path.stem}: {rate:.1%} liked; biased fit alone: log loss {before[0]:.4f}, ECE {before[1]:.4f}"
    )
    columns = (
        "k",
        "limit",
        "Platt",
        "Gaussian",
        "slope + intercept",
        "anchor",
        "worse by (log loss, ECE)",
    )
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for size in SIZES:
        if size > 0.7 * len(scores):
            break
        values: dict[str, list[list[float]]] = {}
        for _ in range(draws):
            order = rng.permutation(len(scores))
            shown, rest = order[:size], order[size : size + JUDGED]
            answers = rivals(biased, scores[shown], labels[shown], scores[rest])
            anchored = cr.anchor(biased, scores[shown], labels[shown], population=population)
            answers["anchor"] = anchored.predict(scores[rest])
            for name, probabilities in answers.items():
                values.setdefault(name, []).append(
                    [metric(probabilities, labels[rest]) for metric in METRICS]
                )
        table = {name: np.array(rows) for name, rows in values.items()}
        cells = [f"{rows[:, 0].mean():.4f} / {rows[:, 1].mean():.4f}" for rows in table.values()]
        limit = 0.8 * np.sqrt(rate * (1 - rate) / size)
        worse = ", ".join(f"{behind(table, metric):+.1f}" for metric in range(2))
        print(f"| {size:,} | {limit:.4f} | {' | '.join(cells)} | {worse} |", flush=True)


def behind(table: dict[str, np.ndarray], metric: int) -> float:
    """Paired standard errors by which anchoring is worse than the best of the others."""
    others = {name: rows[:, metric] for name, rows in table.items() if name != "anchor"}
    best = min(others.values(), key=np.mean)
    apart = table["anchor"][:, metric] - best
    return float(apart.mean() / (apart.std(ddof=1) / np.sqrt(len(apart))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", cr.FlatMapWarning)
    for path in options.files:
        curve(path, options.draws)


if __name__ == "__main__":
    main()
