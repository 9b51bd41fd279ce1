"""Probabilities of relevance on judged runs, by held-out queries: losses, calibration, thresholds.

    python benchmarks/search.py FOLDER --relevant passage=2 doc=1 --exp bert t5 --splits 10

The folder holds runs (any layout that `calibrank search fit` reads) and judgements named
PREFIX.qrels, for the runs whose names start with PREFIX. Each method is fitted on four fifths of
the queries and evaluated on the others, for several divisions into fifths. `--relevant` has the
lowest relevant grade by prefix; `--exp` names runs (by a part of their name) whose scores are log
probabilities of the model, so that exp(score) is what the model claims; of others it is the sigmoid
of the score.

Of each method: the mean log loss and how often it was worse than the constant of the same folds;
the ECE (15 bins of equal width), its mean and largest value; the ECE that calibrated probabilities
would show by chance on the same queries (labels drawn from the held-out probabilities, with levels
per query as variable as those of the data); the ECE without the part that chance adds, by query;
how many documents get at least 0.5, the fraction of them that is relevant, what was predicted, and
the standard error of the difference, by query; the same for documents with 0.45 to 0.55.

`--chance` prints how often probabilities that are right would be off by as much as the mean over
the divisions, in these two regions: labels are drawn from the held-out probabilities of the first
division, with levels per query as variable as those of the data.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.errors import FlatMapWarning
from calibrank.metrics import DebiasedECE
from calibrank.search import Judged, judged_rows, read_qrels, read_run
from calibrank.tabular.labels import parse_rule
from calibrank.terms._groups import fit_mixed_model, integrated

FOLDS = 5
CHANCE_DRAWS = 50
GAP_DRAWS = 2000
Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], Predict]


class Row(NamedTuple):
    """Figures of one method on one division into folds."""

    loss: float
    ece: float
    chance: float
    debiased: float
    above: float
    above_relevant: float
    above_predicted: float
    above_error: float
    near: float
    near_relevant: float
    near_predicted: float
    near_error: float


def constant(_: np.ndarray, labels: np.ndarray, __: np.ndarray) -> Predict:
    rate = labels.mean()
    return lambda new: np.full(len(new), rate)


def label_free(scores: np.ndarray, _: np.ndarray, __: np.ndarray) -> Predict:
    """What search engines ship: a sigmoid of the score, centred and scaled without labels."""
    middle, deviation = np.median(scores), scores.std()
    return lambda new: expit((new - middle) / deviation)


def global_fit(calibrator: cr.Calibrator) -> Fit:
    return lambda scores, labels, _: calibrator.fit(scores, labels).predict


def by_query(calibrator: cr.Calibrator | cr.Auto) -> Fit:
    model = calibrator + cr.Group("query")
    return lambda scores, labels, query: model.fit(scores, labels, {"query": query}).predict


def methods(claimed: Predict) -> dict[str, Fit]:
    return {
        "constant": constant,
        "the model's own": lambda *_: claimed,
        "label-free sigmoid": label_free,
        "Platt": global_fit(cr.Platt()),
        "Gaussian": global_fit(cr.Gaussian()),
        "Spline": global_fit(cr.Spline()),
        "Platt, level per query": by_query(cr.Platt()),
        "Gaussian, level per query": by_query(cr.Gaussian()),
        "Spline, level per query": by_query(cr.Spline()),
        "all three, level per query": by_query(cr.Auto()),
    }


def held_out(fit: Fit, judged: Judged, seed: int) -> np.ndarray:
    """The probability of each document from a fit without the queries of its fold."""
    names, query = np.unique(judged.queries, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(names))[query] % FOLDS
    probabilities = np.empty(len(judged))
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        predict = fit(judged.scores[train], judged.labels[train], judged.queries[train])
        probabilities[test] = predict(judged.scores[test])
    return probabilities


def figures(probabilities: np.ndarray, judged: Judged) -> Row:
    labels = judged.labels
    names, query = np.unique(judged.queries, return_inverse=True)

    def region(kept: np.ndarray) -> tuple[float, float, float, float]:
        """How many, the fraction relevant, the mean prediction, the standard error of the gap."""
        count = float(kept.sum())
        if count == 0:
            return (0.0, *[float("nan")] * 3)
        gaps = labels - probabilities
        gap = float(gaps[kept].mean())
        by_query = np.bincount(query, kept * (gaps - gap), len(names))
        error = float(np.sqrt((by_query**2).sum())) / count
        return count, float(labels[kept].mean()), float(probabilities[kept].mean()), error

    return Row(
        cr.LogLoss()(probabilities, labels),
        cr.ECE()(probabilities, labels),
        chance_ece(judged, probabilities),
        DebiasedECE()(probabilities, labels, users=judged.queries),
        *region(in_regions(probabilities)["at least 0.5"]),
        *region(in_regions(probabilities)["0.45 to 0.55"]),
    )


def in_regions(probabilities: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "at least 0.5": probabilities >= 0.5,
        "0.45 to 0.55": np.abs(probabilities - 0.5) <= 0.05,
    }


def drawn_labels(
    judged: Judged, probabilities: np.ndarray, draws: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Labels as they would be if the probabilities were right, with levels that differ by query."""
    evidence = judged.evidence
    names, query = np.unique(judged.queries, return_inverse=True)
    bounded = np.clip(probabilities, 1e-9, 1 - 1e-9)
    log_odds = np.log(bounded / (1 - bounded))
    spread = fit_mixed_model(log_odds, evidence.positive, evidence.total, query).spread
    # The log odds of a typical query that give these probabilities with levels integrated out.
    grid = np.linspace(-200, 200, 8001)
    typical = np.interp(probabilities, integrated(grid, spread), grid)
    for _ in range(draws):
        level = rng.normal(0, spread, len(names))[query]
        yield rng.random(len(query)) < 1 / (1 + np.exp(-typical - level))


def chance_ece(judged: Judged, probabilities: np.ndarray) -> float:
    """The mean ECE of labels drawn from the probabilities."""
    labels = drawn_labels(judged, probabilities, CHANCE_DRAWS, np.random.default_rng(0))
    total = judged.evidence.total
    eces = [cr.ECE()(probabilities, cr.Evidence(total * drawn, total)) for drawn in labels]
    return float(np.mean(eces))


def print_chance(judged: Judged, rows: list[Row]) -> None:
    """How often a true map would miss by as much as was seen."""
    probabilities = held_out(by_query(cr.Auto()), judged, seed=0)
    mean = means(rows)
    seen = {
        "at least 0.5": mean.above_relevant - mean.above_predicted,
        "0.45 to 0.55": mean.near_relevant - mean.near_predicted,
    }
    labels = drawn_labels(judged, probabilities, GAP_DRAWS, np.random.default_rng(0))
    gaps: dict[str, list[float]] = {name: [] for name in seen}
    for drawn in labels:
        for name, kept in in_regions(probabilities).items():
            gaps[name].append(float((drawn - probabilities)[kept].mean()) if kept.any() else 0.0)
    for name, gap in seen.items():
        as_far = np.mean(np.abs(gaps[name]) >= abs(gap))
        spread = np.std(gaps[name])
        print(f"{name}: off by {gap:+.0%}; a true map by {spread:.0%}, so far in {as_far:.0%}")


def runs(folder: Path, relevant: dict[str, float]) -> Iterator[tuple[str, Judged]]:
    for qrels in sorted(folder.glob("*.qrels")):
        grades = read_qrels(str(qrels))
        rule = parse_rule(f"grade >= {relevant.get(qrels.stem, 1):g}")
        for file in sorted(folder.glob(f"{qrels.stem}*")):
            if file != qrels:
                yield file.stem, judged_rows(read_run(str(file)), grades, rule)


def means(rows: list[Row]) -> Row:
    with warnings.catch_warnings():
        # No split may have a document in a region.
        warnings.simplefilter("ignore", RuntimeWarning)
        return Row(*np.nanmean(np.array(rows), axis=0).tolist())


def share(count: float, relevant: float, predicted: float, error: float) -> str:
    return f"{count:.0f}: {relevant:.0%}, {predicted:.0%} ({error:.0%})" if count >= 0.5 else "none"


def line(name: str, rows: list[Row], constants: list[Row]) -> str:
    mean = means(rows)
    pairs = zip(rows, constants, strict=True)
    # By more than rounding: the constant is not worse than itself.
    worse = sum(row.loss > other.loss + 1e-9 for row, other in pairs)
    most = max(row.ece for row in rows)
    cells = [
        f"{mean.loss:.4f} | {worse} of {len(rows)}",
        f"{mean.ece:.3f} ({most:.3f}) | {mean.chance:.3f} | {mean.debiased:.3f}",
        share(mean.above, mean.above_relevant, mean.above_predicted, mean.above_error),
        share(mean.near, mean.near_relevant, mean.near_predicted, mean.near_error),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Calibration of judged runs, by query.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--relevant", nargs="*", default=[], metavar="PREFIX=GRADE")
    parser.add_argument("--exp", nargs="*", default=[], metavar="PART")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--chance", action="store_true")
    parser.add_argument("--methods", nargs="*", default=[], metavar="NAME")
    return parser.parse_args()


def main() -> None:
    """Print one table per run."""
    given = arguments()
    relevant = {}
    for each in given.relevant:
        prefix, grade = each.split("=")
        relevant[prefix] = float(grade)
    # A flat map of one fold is no news: its loss shows it.
    warnings.simplefilter("ignore", FlatMapWarning)
    for name, judged in runs(given.folder, relevant):
        started = time.perf_counter()
        rate = f"{judged.labels.mean():.1%} relevant"
        print(f"\n{name}: {len(judged):,} judged documents, {judged.n_queries} queries, {rate}\n")
        print(
            "| method | log loss | worse than constant | ECE (max) | by chance | debiased ECE |",
            end="",
        )
        print(" at least 0.5: relevant, predicted | 0.45 to 0.55: relevant, predicted |")
        print("|---" * 8 + "|")
        constants: list[Row] = []
        claimed = np.exp if any(part in name for part in given.exp) else expit
        for method, fit in methods(claimed).items():
            if given.methods and method not in ("constant", *given.methods):
                continue
            seeds = range(given.splits)
            rows = [figures(held_out(fit, judged, seed), judged) for seed in seeds]
            constants = constants or rows
            print(line(method, rows, constants), flush=True)
        if given.chance:
            print_chance(judged, rows)
        print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
