"""A judge and few human labels: anchoring against either alone, which pairs to judge, and swaps.

    python benchmarks/judges.py FOLDER --divisions 20

The folder holds runs (.parquet), `human.qrels` and `judge.qrels` of the same pairs. Queries are
divided in halves, several times: maps are made on one half and evaluated on the other, by the human
labels of its judged documents. Labels are "spread" (in turn one pair of each query) or those of
whole queries. Of each method: mean log loss and ECE over runs and divisions. Differences are paired
by division, and so are their standard errors.

`--swap` replaces each run by the next one: the map of the old run, on the scale of ranks, is the
start for the new one. "Others" is the mean by ranks of the maps of all other runs. With files of
`arena_scores.py` instead of a folder of runs (`--scores FOLDER`), one model's anchored map starts
another's.
"""

import argparse
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import calibrank as cr
from calibrank.anchoring import transfer
from calibrank.errors import CalibrankError, FlatMapWarning
from calibrank.search import Judged, Run, fit_judged, judged_rows, plan_pairs, read_qrels, read_run
from calibrank.tabular.labels import parse_rule

RULE = parse_rule("grade >= 2")
WHOLE = (1, 2, 3, 5, 8, 10, 15, 20, 26)
PLANNED = (15, 30, 60, 100, 200)
REACHED = 0.65


class Results:
    """Log losses and ECEs by method, run and division."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}

    def add(self, method: str, key: tuple[str, int], predicted: np.ndarray, judged: Judged) -> None:
        found = cr.LogLoss()(predicted, judged.labels), cr.ECE()(predicted, judged.labels)
        self.rows.setdefault(method, {})[key] = found

    def mean(self, method: str) -> tuple[float, float]:
        loss, ece = np.mean(list(self.rows[method].values()), axis=0).tolist()
        return loss, ece

    def difference(self, method: str, other: str) -> tuple[float, float]:
        """The mean difference in log loss, and its standard error over divisions."""
        by_division: dict[int, list[float]] = {}
        for key, (loss, _) in self.rows[method].items():
            by_division.setdefault(key[1], []).append(loss - self.rows[other][key][0])
        means = np.array([np.mean(each) for each in by_division.values()])
        return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))

    def print(self) -> None:
        for method in self.rows:
            loss, ece = self.mean(method)
            print(f"{method:32} log loss {loss:.4f}  ECE {ece:.4f}")

    def print_difference(self, method: str, other: str) -> None:
        mean, error = self.difference(method, other)
        print(f"{method} - {other}: {mean:+.4f} (standard error {error:.4f})")


def of_queries(run: Run, queries: np.ndarray) -> Run:
    kept = np.isin(run.queries, queries)
    return Run(run.queries[kept], run.documents[kept], run.scores[kept])


def divisions(run: Run, count: int) -> Iterator[tuple[int, Run, Run, np.random.Generator]]:
    names = np.unique(run.queries)
    for number in range(count):
        rng = np.random.default_rng(number)
        train = rng.permutation(names)[: len(names) // 2]
        yield number, of_queries(run, train), of_queries(run, np.setdiff1d(names, train)), rng


def spread(judged: Judged, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of one pair of each query in turn."""
    order = rng.permutation(len(judged))
    names = rng.permutation(np.unique(judged.queries))
    turns = [order[judged.queries[order] == name] for name in names]
    rows = [row for turn in itertools.zip_longest(*turns) for row in turn if row is not None]
    return np.array(rows[:count])


def platt(judged: Judged, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
    labels = judged.labels[rows]
    try:
        return cr.Platt().fit(judged.scores[rows], labels).predict(scores)
    except CalibrankError:
        return np.full(len(scores), (labels.sum() + 0.5) / (len(rows) + 1))


def alone(judged: Judged, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The map that `search fit` makes of these labels, or Platt if queries are too few."""
    model = cr.Auto() + cr.Group("query")
    try:
        fitted = model.fit(
            judged.scores[rows], judged.labels[rows], {"query": judged.queries[rows]}
        )
    except CalibrankError:
        return platt(judged, rows, scores)
    return fitted.predict(scores)


def anchored(start: cr.CalibrationMap, judged: Judged, rows: np.ndarray) -> cr.CalibrationMap:
    queries = judged.queries[rows]
    return cr.anchor(start, judged.scores[rows], judged.labels[rows], groups=queries)


def planned(start: cr.CalibrationMap, human: Judged, count: int, seed: int) -> cr.CalibrationMap:
    """Anchored on the pairs of `plan_pairs`, of the documents that have a human label."""
    run = Run(human.queries, human.documents, human.scores)
    chosen = plan_pairs(start, run, count, seed)
    pairs = list(zip(run.queries.tolist(), run.documents.tolist(), strict=True))
    place = {pair: row for row, pair in enumerate(pairs)}
    found = zip(chosen.pairs.queries.tolist(), chosen.pairs.documents.tolist(), strict=True)
    rows = np.array([place[pair] for pair in found])
    labels, queries = human.labels[rows], human.queries[rows]
    return cr.anchor(
        start, human.scores[rows], labels, propensity=chosen.propensity, groups=queries
    )


def compare_judges(folder: Path, count: int) -> None:
    """Targets of a judge with few human labels, and of which pairs to judge."""
    human, judge = read_qrels(str(folder / "human.qrels")), read_qrels(str(folder / "judge.qrels"))
    results = Results()
    numbers: dict[int, list[int]] = {}
    for file in sorted(folder.glob("*.parquet")):
        for number, train, test, rng in divisions(read_run(str(file)), count):
            key = file.stem, number
            people, new = judged_rows(train, human, RULE), judged_rows(test, human, RULE)
            start = fit_judged(judged_rows(train, judge, RULE))
            results.add("judge alone", key, start.predict(new.scores), new)
            rows = spread(people, 200, rng)
            for size in (30, 60, 100, 200):
                chosen = rows[:size]
                results.add(f"{size} human, Platt", key, platt(people, chosen, new.scores), new)
                results.add(f"{size} human alone", key, alone(people, chosen, new.scores), new)
            for size in (30, 100):
                after = anchored(start, people, rows[:size])
                results.add(f"judge and {size} human", key, after.predict(new.scores), new)
            one = rng.permutation(np.flatnonzero(people.queries == rng.choice(people.queries)))
            after = anchored(start, people, one[:30])
            results.add("judge and 30 of one query", key, after.predict(new.scores), new)
            order = rng.permutation(np.unique(people.queries))
            for queries in WHOLE:
                rows = np.flatnonzero(np.isin(people.queries, order[:queries]))
                numbers.setdefault(queries, []).append(len(rows))
                after = anchored(start, people, rows)
                results.add(f"whole queries: {queries}", key, after.predict(new.scores), new)
            for size in PLANNED:
                after = planned(start, people, size, number)
                results.add(f"planned pairs: {size}", key, after.predict(new.scores), new)
        print(file.stem, flush=True)
    results.print()
    for method, other in (
        ("judge and 30 human", "60 human alone"),
        ("judge and 30 human", "60 human, Platt"),
        ("judge and 30 human", "30 human alone"),
        ("judge and 30 human", "judge alone"),
        ("judge and 100 human", "100 human alone"),
        ("judge and 100 human", "200 human alone"),
        ("judge and 30 of one query", "judge alone"),
    ):
        results.print_difference(method, other)
    whole = {np.mean(each): results.mean(f"whole queries: {q}")[0] for q, each in numbers.items()}
    pairs = {float(size): results.mean(f"planned pairs: {size}")[0] for size in PLANNED}
    for name, losses in (("whole queries", whole), ("planned pairs", pairs)):
        print(f"labels to reach log loss {REACHED}, {name}: {reached(losses)}")


def reached(losses: dict[float, float]) -> str:
    """The number of labels at which the log loss is reached, between the measured ones."""
    sizes, values = np.log(list(losses)), np.array(list(losses.values()))
    if values[0] <= REACHED:
        return f"at most {np.exp(sizes[0]):.0f}"
    below = np.flatnonzero(values <= REACHED)
    if not len(below):
        return f"more than {np.exp(sizes[-1]):.0f}"
    place = below[0]
    part = (values[place - 1] - REACHED) / (values[place - 1] - values[place])
    size = sizes[place - 1] + part * (sizes[place] - sizes[place - 1])
    return f"{np.exp(size):.0f}"


def compare_swaps(folder: Path, count: int) -> None:
    """A run replaces another: labels of the new one, with and without the old map as a start."""
    human = read_qrels(str(folder / "human.qrels"))
    runs = {file.stem: read_run(str(file)) for file in sorted(folder.glob("*.parquet"))}
    names = list(runs)
    results = Results()
    for parts in zip(*[divisions(run, count) for run in runs.values()], strict=True):
        number = parts[0][0]
        known = [judged_rows(train, human, RULE) for _, train, _, _ in parts]
        maps = [fit_judged(judged) for judged in known]
        for place, (_, train, test, rng) in enumerate(parts):
            key, people = (names[place], number), known[place]
            new = judged_rows(test, human, RULE)
            old = transfer(maps[(place + 1) % len(maps)], train.scores)
            others = [*maps[:place], *maps[place + 1 :]]
            starts = {"old map": old, "others": transfer(others, train.scores)}
            rows = spread(people, 100, rng)
            chosen = {f"{size} spread": rows[:size] for size in (30, 100)}
            order = rng.permutation(np.unique(people.queries))
            for size in (5, 10, 15):
                rows = np.flatnonzero(np.isin(people.queries, order[:size]))
                chosen[f"{size} queries"] = rows
            for name, start in starts.items():
                results.add(f"{name}, 0 labels", key, start.predict(new.scores), new)
            for labels, rows in chosen.items():
                results.add(f"own, {labels}", key, alone(people, rows, new.scores), new)
                for name, start in starts.items():
                    after = anchored(start, people, rows)
                    results.add(f"{name}, {labels}", key, after.predict(new.scores), new)
        print(number, flush=True)
    results.print()
    for start in ("old map", "others"):
        for labels, own in (
            ("0 labels", "5 queries"),
            ("5 queries", "10 queries"),
            ("10 queries", "15 queries"),
            ("30 spread", "30 spread"),
        ):
            results.print_difference(f"{start}, {labels}", f"own, {own}")


def pairs_of(rows: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Judged:
    return Judged(rows, rows, scores[rows], labels[rows], cr.naive(labels[rows]), "pairs")


def compare_models(folder: Path, count: int) -> None:
    """A model replaces another, each with random labels of pairs: ECE and log loss."""
    for dataset in sorted({file.name.split("-")[0] for file in folder.glob("*.npz")}):
        files = sorted(folder.glob(f"{dataset}-*.npz"))
        results = Results()
        for file, old_file in zip(files, [*files[1:], files[0]], strict=True):
            new, old = np.load(file), np.load(old_file)
            for number in range(count):
                rng = np.random.default_rng(number)
                key = file.stem, number
                order = rng.permutation(len(new["test_scores"]))
                half = len(order) // 2
                test, pool = order[:half], order[half:]
                scores, labels = new["test_scores"], new["test_labels"]
                evidence = cr.ips(old["pair_labels"], old["propensity"], weights=old["weights"])
                log_map = cr.Gaussian().fit(old["pair_scores"], evidence)
                past = pool[100:400]
                start = cr.anchor(log_map, old["test_scores"][past], old["test_labels"][past])
                moved = transfer(start, scores[pool])
                target = pairs_of(test, scores, labels)
                results.add("old map, 0 labels", key, moved.predict(scores[test]), target)
                for size in (30, 100):
                    chosen = pool[:size]
                    after = cr.anchor(
                        start, scores[chosen], labels[chosen], population=scores[pool]
                    )
                    results.add(f"old map, {size}", key, after.predict(scores[test]), target)
                    own = pairs_of(chosen, scores, labels)
                    predicted = platt(own, np.arange(size), scores[test])
                    results.add(f"own Platt, {size}", key, predicted, target)
        print(dataset)
        results.print()
        results.print_difference("old map, 30", "own Platt, 100")


def main() -> None:
    """Print means, and differences with their standard errors."""
    parser = argparse.ArgumentParser(description="Judges and few human labels, by query.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--divisions", type=int, default=20)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--swap", action="store_true")
    kinds.add_argument("--scores", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", FlatMapWarning)
    if given.scores:
        compare_models(given.folder, given.divisions)
    elif given.swap:
        compare_swaps(given.folder, given.divisions)
    else:
        compare_judges(given.folder, given.divisions)


if __name__ == "__main__":
    main()
