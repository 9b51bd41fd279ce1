"""ECE on worlds in which users choose what they see, by what is made of the log.

`python benchmarks/shown.py [--draws 3] [--figure shown.png]`. A log of impressions
is calibrated as a log of likes (UERM: `ips` with popularity and sampled negatives), as impressions
weighted by exposure, and as impressions moved to the rate assumed from activity; each with 0, 30,
100 and 300 random labels. The worlds' true probabilities are known, and nothing is tuned on them.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from tests.shown_world import ShownWorld, make_shown_world

import calibrank as cr
from calibrank.anchoring import assume_rate_from_activity, to_assumed_rate
from calibrank.data import Positives, population_negatives, with_negatives
from calibrank.propensity import Exposure, Popularity

SELECTIONS = {"mild": 0.4, "medium": 1.0, "strong": 1.6}
SIZES = (0, 30, 100, 300)
POPULATION = 4_000
# Sets of random labels per world and number of labels.
LABEL_DRAWS = 3


def start_maps(world: ShownWorld, population: np.ndarray) -> dict[str, cr.CalibrationMap]:
    """The map that each reading of the log gives without random labels."""
    log = world.log
    shown_scores = world.scores[log.users, log.items]
    exposure = Exposure().fit(log).predict(log.users, log.items)
    shown = cr.Gaussian().fit(shown_scores, cr.impressions(log.labels, exposure))
    likes = log.positives()
    positives = Positives.of(likes)
    each, weight = population_negatives(positives)
    pairs = with_negatives(likes, positives, each)
    weights = np.where(pairs.labels == 1, 1.0, weight or 1.0)
    propensity = Popularity().fit(likes).predict(pairs.users, pairs.items)
    evidence = cr.ips(pairs.labels, propensity, weights=weights)
    uerm = cr.Gaussian().fit(world.scores[pairs.users, pairs.items], evidence)
    assumed = to_assumed_rate(shown, assume_rate_from_activity(log), population)
    return {"likes only (UERM)": uerm, "impressions": shown, "impressions, assumed rate": assumed}


def errors(selection: float, seed: int) -> dict[tuple[str, int], float]:
    """ECE of every reading and number of labels on one world, against true probabilities."""
    world = make_shown_world(selection=selection, seed=seed)
    rng = np.random.default_rng([seed, int(10 * selection)])
    scores = world.scores.ravel()
    truth = world.probabilities.ravel()
    population = rng.choice(scores, POPULATION, replace=False)
    found = {}
    for name, start in start_maps(world, population).items():
        for size in SIZES:
            drawn = []
            for _ in range(LABEL_DRAWS if size else 1):
                fitted = start
                if size:
                    rows = rng.choice(len(scores), size, replace=False)
                    labels = rng.random(size) < truth[rows]
                    fitted = cr.anchor(start, scores[rows], labels, population=population)
                labels = rng.random(len(truth)) < truth
                drawn.append(cr.ECE()(fitted.predict(scores), labels))
            found[name, size] = float(np.mean(drawn))
    return found


def draw_figure(table: dict[str, dict[tuple[str, int], float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(table), figsize=(9, 3.2), sharey=True)
    for axis, (title, cells) in zip(axes, table.items(), strict=True):
        for name in dict.fromkeys(name for name, _ in cells):
            axis.plot(range(len(SIZES)), [cells[name, size] for size in SIZES], "o-", label=name)
        axis.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
        axis.set_title(f"{title} self-selection")
        axis.set_xlabel("random labels")
        # From 0.01 to 0.5: on a linear scale the lower curves would be one line.
        axis.set_yscale("log")
        axis.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
        axis.minorticks_off()
    axes[0].set_ylabel("ECE")
    axes[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = {}
    for title, selection in SELECTIONS.items():
        drawn = [errors(selection, seed) for seed in range(options.draws)]
        table[title] = {key: float(np.mean([each[key] for each in drawn])) for key in drawn[0]}
    header = " | ".join(f"{size} labels" for size in SIZES)
    print(f"| self-selection | log read as | {header} |")
    print(f"|---|---|{'---|' * len(SIZES)}")
    for title, cells in table.items():
        for name in dict.fromkeys(name for name, _ in cells):
            values = " | ".join(f"{cells[name, size]:.3f}" for size in SIZES)
            print(f"| {title} | {name} | {values} |")
    if options.figure is not None:
        draw_figure(table, options.figure)


if __name__ == "__main__":
    main()
