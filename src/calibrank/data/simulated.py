"""Synthetic examples: a dataset to train on, and a search collection with a judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrank._internal.arguments import path_of, seeded, whole
from calibrank._internal.atomic import write_all_atomic
from calibrank._internal.logit import expit
from calibrank.data.table import Dataset
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

# Every pair is simulated: 10 GB of matrices.
_MOST_PAIRS = 10**8
# The streams of the seed that this module draws from.
_DATASET_STREAM = 77
_JUDGED_STREAM = 78
# Users and items have random vectors of this length: enough structure for a model to learn.
_DIMENSIONS = 4
# The size of the search collection.
_QUERIES = 60
_DOCUMENTS = 25


def simulate(
    n_users: int = 300, n_items: int = 200, shown: int = 20, seed: int | np.random.Generator = 0
) -> Dataset:
    """Simulate a recommender's log: popular items are shown more often, positives are logged.

    The test set holds `shown` items per user, drawn uniformly, with their labels. `propensity` is
    the true P(observed) of every pair.

    >>> simulate(50, 40, 10).test
    Interactions(500 rows, 106 positive, 50 users, 40 items)
    """
    n_users = whole("n_users", n_users, 1)
    n_items = whole("n_items", n_items, 1)
    if n_users * n_items > _MOST_PAIRS:
        rule, remedy = f"be at most {_MOST_PAIRS:,}", "Simulate fewer."
        raise DataError("n_users times n_items", rule, f"{n_users:,} and {n_items:,}", remedy)
    shown = whole("shown", shown, 1, n_items, "A user has at most one impression per item.")
    rng = seeded(seed, _DATASET_STREAM)
    user_vectors = rng.standard_normal((n_users, _DIMENSIONS))
    item_vectors = rng.standard_normal((n_items, _DIMENSIONS))
    quality = rng.standard_normal(n_items)
    # Coefficients chosen so that about one pair in five is liked and two in five are shown.
    affinity = expit(user_vectors @ item_vectors.T + 0.7 * quality - 2.5)
    liked = rng.random((n_users, n_items)) < affinity
    # Good items are shown more often: the log is biased towards them.
    exposure = expit(1.2 * quality + 0.8 * rng.standard_normal(n_items) - 0.5)
    propensity = np.tile(exposure, (n_users, 1))
    observed = rng.random(liked.shape) < propensity
    users, items = np.nonzero(observed & liked)
    # The test set: `shown` items per user, drawn without replacement, with their true labels.
    test_items = np.argsort(rng.random(liked.shape), axis=1)[:, :shown].ravel()
    test_users = np.repeat(np.arange(n_users), shown)
    labels = liked[test_users, test_items].astype(np.float64)
    return Dataset(
        "synthetic",
        Interactions(users, items, None, n_users, n_items),
        Interactions(test_users, test_items, labels, n_users, n_items),
        Index(np.arange(n_users)),
        Index(np.arange(n_items)),
        user_vectors,
        np.column_stack([item_vectors, quality]),
        propensity,
    )


def write_judged_example(folder: str | Path, seed: int | np.random.Generator = 0) -> None:
    """Write a run, a judge's grades, and what people would say: made by us, of no real collection.

    `run.trec` has 60 queries of 25 documents, `judge.qrels` the grades 0 to 3 of a judge that is
    too generous, `people.qrels` those of people for all pairs. Relevant is 2 or more. Use a few of
    the latter to anchor on, and the rest to see whether it worked.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_judged_example(folder)
    ...     print(sorted(file.name for file in Path(folder).iterdir()))
    ['judge.qrels', 'people.qrels', 'run.trec']
    """
    target = path_of("folder", folder)
    rng = seeded(seed, _JUDGED_STREAM)
    run: list[str] = []
    judge: list[str] = []
    people: list[str] = []
    for query in range(_QUERIES):
        # Queries differ in how many relevant documents they have, and in the level of their scores.
        level, offset = rng.normal(0, 0.8), rng.normal(0, 0.3)
        quality = np.sort(rng.normal(size=_DOCUMENTS))[::-1]
        likely = 1.2 * quality - 0.9 + level + rng.normal(0, 0.5, _DOCUMENTS)
        truth = rng.random(_DOCUMENTS) < expit(likely)
        # The judge sees nearly the same, calls more relevant, and errs in its own ways.
        called = rng.random(_DOCUMENTS) < expit(1.5 * likely + 1.2 * truth + 0.8)
        scores = 10 + 2 * quality + offset + rng.normal(0, 0.5, _DOCUMENTS)
        places = np.argsort(-scores).tolist()
        for rank, place in enumerate(places, start=1):
            pair = f"q{query + 1}", f"d{query + 1}-{place + 1}"
            run.append(f"{pair[0]} Q0 {pair[1]} {rank} {scores[place]:.4f} example\n")
            for lines, is_relevant in ((judge, called[place]), (people, truth[place])):
                grade = int(rng.integers(0, 2)) + 2 * int(is_relevant)
                lines.append(f"{pair[0]} 0 {pair[1]} {grade}\n")
    files = {"run.trec": run, "judge.qrels": judge, "people.qrels": people}
    write_all_atomic({target / name: "".join(lines) for name, lines in files.items()})
