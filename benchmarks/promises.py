"""How often promises of `calibrank.decisions` are broken: claimed, measured, allowed.

`python benchmarks/promises.py` simulates users whose activity has a heavy tail. `python
benchmarks/promises.py FOLDER` adds real lists from FOLDER: `dl21` (eight runs of TREC DL 2021 and
`human.qrels`; queries) and `kuairec` (`train.parquet`, `test.parquet`; users). There a map is
fitted on a fifth of the users, the others are the population, and labelled users are drawn from it
with replacement, so that the truth is known. `--draws 100 --divisions 20` takes a minute or two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import calibrank as cr
from calibrank.decisions import (
    CUTS,
    Cut,
    Guarantee,
    PooledPrecision,
    Precision,
    Promise,
    Rank,
    Recall,
)

TRUTH = 20_000
RUN_QUERIES = 43
KUAIREC_USERS = 400
ROWS_PER_USER = 200


@dataclass(frozen=True)
class Population:
    """Rows sorted by user, most probable first; ties count against the promises."""

    probabilities: np.ndarray
    labels: np.ndarray
    users: np.ndarray

    @classmethod
    def of(cls, probabilities: np.ndarray, labels: np.ndarray, users: np.ndarray) -> Population:
        codes = np.unique(users, return_inverse=True)[1]
        order = np.lexsort((labels, -probabilities, codes))
        return cls(probabilities[order], labels[order].astype(float), codes[order])

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(np.bincount(self.users))])

    @cached_property
    def rank(self) -> np.ndarray:
        return np.arange(len(self.users)) - self.starts[self.users]

    @cached_property
    def best(self) -> np.ndarray:
        return self.probabilities[self.starts[:-1]][self.users]

    @cached_property
    def relevant(self) -> np.ndarray:
        return np.bincount(self.users, self.labels)

    def draw(self, users: int, rng: np.random.Generator) -> Population:
        """Users with replacement, each as a user of its own."""
        starts = self.starts
        chosen = rng.integers(0, len(starts) - 1, users)
        rows = [np.arange(starts[user], starts[user + 1]) for user in chosen]
        codes = np.repeat(np.arange(users), [len(each) for each in rows])
        every = np.concatenate(rows)
        return Population(self.probabilities[every], self.labels[every], codes)

    def value(self, promise: Promise, found: Guarantee, longest: int | None) -> float:
        """The precision or recall of a cut, for these users."""
        if found.threshold is not None:
            shown = self.probabilities >= found.threshold
        elif found.rank is not None:
            shown = self.rank < found.rank
        else:
            shown = self.best - self.probabilities <= found.gap
        shown &= self.best >= found.best.answer_from
        if longest is not None:
            shown &= self.rank < longest
        length = np.bincount(self.users, shown)
        hits = np.bincount(self.users, shown * self.labels)
        if isinstance(promise, PooledPrecision):
            return float(hits.sum() / length.sum())
        base = self.relevant if isinstance(promise, Recall) else length
        answered = self.best[self.starts[:-1]] >= found.best.answer_from
        counted = (base > 0) & answered
        return float(np.mean(hits[counted] / base[counted]))


def simulated(users: int, rng: np.random.Generator) -> Population:
    """Activity falls off as a power law; 1% of users have 300 rows and like hardly any."""
    heavy = rng.random(users) < 0.01
    activity = np.minimum(3 + 2 * rng.pareto(1.1, users), 300).astype(int)
    counts = np.where(heavy, 300, activity)
    codes = np.repeat(np.arange(users), counts)
    scores = rng.normal(size=len(codes))
    shift = np.where(heavy, -3, rng.normal(0.5, 1, users) - 0.1 * np.log(counts))[codes]
    labels = rng.random(len(codes)) < 1 / (1 + np.exp(-2 * scores - shift))
    return Population.of(1 / (1 + np.exp(-2 * scores)), labels, codes)


def measure(
    claim: str,
    make: Callable[[np.random.Generator], tuple[Population, Population]],
    promises: Sequence[Promise],
    draws: int,
    *,
    cut: Cut | Sequence[Cut] = CUTS[0],
    longest: int | None = None,
    abstain: bool = False,
) -> None:
    """Print how often any promise was broken."""
    rng = np.random.default_rng(0)
    values = []
    lengths = []
    broken = 0
    for _ in range(draws):
        labelled, truth = make(rng)
        found = cr.control(
            labelled.probabilities,
            labelled.labels,
            labelled.users,
            promises,
            cut=cut,
            longest=longest,
            abstain=abstain,
        )
        if found.best is None:
            continue
        reached = [truth.value(promise, found, longest) for promise in promises]
        broken += any(
            value < promise.at_least for value, promise in zip(reached, promises, strict=True)
        )
        values.append(reached)
        lengths.append(found.best.length)
    answers = f"{len(values)} of {draws} draws have a cut"
    if not values:
        print(f"{claim} | broken 0.0% | allowed 5% | {answers}", flush=True)
        return
    mean = ", ".join(f"{value:.1%}" for value in np.mean(values, axis=0))
    result = f"broken {broken / draws:.1%} | allowed 5% | mean {mean}"
    print(f"{claim} | {result} | {answers}, mean length {np.mean(lengths):.1f}", flush=True)


def simulate(draws: int) -> None:
    truth = simulated(TRUTH, np.random.default_rng(99))
    for users in (50, 200):

        def make(rng: np.random.Generator, users: int = users) -> tuple[Population, Population]:
            return simulated(users, rng), truth

        name = f"simulated, {users} users"
        measure(f"{name}: precision 75%", make, [Precision(0.75)], draws)
        measure(f"{name}: recall 70%", make, [Recall(0.7)], draws)
        measure(f"{name}: recall 70%, 3 cuts", make, [Recall(0.7)], draws, cut=CUTS)
        both = [Precision(0.6), Recall(0.6)]
        measure(f"{name}: precision and recall 60%", make, both, draws)
        measure(f"{name}: the same, abstaining", make, both, draws, abstain=True)
        pooled = [PooledPrecision(0.75)]
        measure(f"{name}: pooled precision 75%, lists of 10", make, pooled, draws, longest=10)


def split(
    scores: np.ndarray, labels: np.ndarray, users: np.ndarray, curve: cr.Calibrator, labelled: int
) -> Callable[[np.random.Generator], tuple[Population, Population]]:
    """Fit on a fifth of the users, draw labelled users from the others, who are the truth."""
    codes = np.unique(users, return_inverse=True)[1]

    def make(rng: np.random.Generator) -> tuple[Population, Population]:
        order = rng.permutation(codes.max() + 1)
        is_fitted = (order < len(order) / 5)[codes]
        fitted = curve.fit(scores[is_fitted], labels[is_fitted])
        rest = ~is_fitted
        truth = Population.of(fitted.predict(scores[rest]), labels[rest], codes[rest])
        return truth.draw(labelled, rng), truth

    return make


def search(folder: Path, draws: int) -> None:
    grades = {}
    for line in (folder / "human.qrels").read_text().splitlines():
        query, _, document, grade = line.split()
        grades[query, document] = int(grade)
    for path in sorted(folder.glob("*.parquet")):
        run = pq.read_table(path).to_pydict()
        pairs = zip(run["query"], run["doc"], strict=True)
        labels = np.array([grades.get(pair, 0) >= 2 for pair in pairs], dtype=float)
        scores = np.array(run["score"])
        make = split(scores, labels, np.array(run["query"]), cr.Platt(), RUN_QUERIES)
        for each in CUTS:
            measure(f"{path.stem}: recall 80%, {each.name}", make, [Recall(0.8)], draws, cut=each)
        measure(f"{path.stem}: recall 80%, 3 cuts", make, [Recall(0.8)], draws, cut=CUTS)
        measure(f"{path.stem}: precision 40%, rank", make, [Precision(0.4)], draws, cut=Rank())


def recommend(folder: Path, draws: int) -> None:
    train = pq.read_table(folder / "train.parquet", columns=["user", "item"]).to_pydict()
    test = pq.read_table(folder / "test.parquet").to_pydict()
    rng = np.random.default_rng(0)
    users = np.array(test["user"])
    # A sample of each user's rows stands for the candidates.
    order = np.lexsort((rng.random(len(users)), users))
    starts = np.searchsorted(users[order], users[order])
    rows = order[np.arange(len(order)) - starts < ROWS_PER_USER]
    popularity = np.bincount(np.array(train["item"]), minlength=max(test["item"]) + 1)
    activity = np.bincount(np.array(train["user"]), minlength=max(test["user"]) + 1)
    items = np.array(test["item"])[rows]
    scores = np.log1p(popularity[items]) + 0.3 * np.log1p(activity[users[rows]])
    labels = np.array(test["label"], dtype=float)[rows]
    make = split(scores, labels, users[rows], cr.Gaussian(), KUAIREC_USERS)
    measure("kuairec: precision 25%", make, [Precision(0.25)], draws)
    measure("kuairec: precision 15%", make, [Precision(0.15)], draws)
    pooled = [PooledPrecision(0.25)]
    measure("kuairec: pooled precision 25%, lists of 10", make, pooled, draws, longest=10)
    for each in CUTS:
        measure(f"kuairec: recall 70%, {each.name}", make, [Recall(0.7)], draws, cut=each)
    both = [Precision(0.12), Recall(0.4)]
    measure("kuairec: precision 12% and recall 40%, 3 cuts", make, both, draws, cut=CUTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--draws", type=int, default=1_000, help="of the simulation")
    parser.add_argument("--divisions", type=int, default=200, help="of real users")
    arguments = parser.parse_args()
    started = time.perf_counter()
    print("claim, confidence 95% | measured | allowed | comments")
    simulate(arguments.draws)
    if arguments.folder is not None:
        search(arguments.folder / "dl21", arguments.divisions)
        recommend(arguments.folder / "kuairec", arguments.divisions)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
