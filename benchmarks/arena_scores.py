"""Score files for `benchmarks/arena.py`: rankers trained on a biased log, and a random test set.

`python benchmarks/arena_scores.py coat --data DIR --out scores` trains the five base models and,
where they are installed, ALS of implicit and a LightGBM ranker. Each file holds the scores of the
randomly exposed test set, and those of held-out positives with sampled negatives, with their
propensities and weights; the users and items of both, and their counts in the training log.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from calibrank.data import Dataset, Positives, RandomSplit, population_negatives, with_negatives
from calibrank.models import Training, train
from calibrank.propensity import Popularity
from calibrank.registry import MODELS, load_dataset
from calibrank.tables import Interactions

MOST_NEGATIVES = 325_000
Scorer = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Log:
    """A split of the biased log, and the pairs to calibrate on."""

    kept: Interactions
    held_out: Interactions
    pairs: Interactions
    weights: np.ndarray
    propensity: np.ndarray


def prepare(dataset: Dataset, seed: int) -> Log:
    kept, held_out = RandomSplit(seed=seed).divide(dataset.train.positives())
    positives = Positives.of(kept, held_out)
    each, weight = population_negatives(positives)
    pairs = with_negatives(held_out, positives, each, np.random.default_rng([seed, 0, 3]))
    is_negative = pairs.labels == 0
    weights = np.where(is_negative, 1.0 if weight is None else weight, 1.0)
    # A sample of the negatives is enough, and stands for all of them.
    fraction = min(1.0, MOST_NEGATIVES / max(int(is_negative.sum()), 1))
    chosen = ~is_negative | (np.random.default_rng(seed).random(len(pairs)) < fraction)
    weights = np.where(is_negative, weights / chosen[is_negative].mean(), weights)
    pairs = pairs.take(chosen)
    propensity = Popularity().fit(kept).predict(pairs.users, pairs.items)
    return Log(kept, held_out, pairs, weights[chosen], propensity)


def base_models(log: Log, training: Training, seed: int) -> Iterator[tuple[str, Scorer]]:
    for name, model in MODELS.items():
        yield name, train(model, log.kept, log.held_out, training, seed, None).scorer.score


def other_libraries(log: Log, factors: int) -> Iterator[tuple[str, Scorer]]:
    if find_spec("implicit") is None:
        return
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    users = log.kept.users
    items = log.kept.items
    shape = (log.kept.n_users, log.kept.n_items)
    matrix = csr_matrix((np.full(len(users), 20.0, np.float32), (users, items)), shape=shape)
    als = AlternatingLeastSquares(factors=factors, iterations=15, random_state=0)
    als.fit(matrix, show_progress=False)
    by_user = np.asarray(als.user_factors)
    by_item = np.asarray(als.item_factors)
    yield "ALS", lambda u, i: np.einsum("ij,ij->i", by_user[u], by_item[i])
    if find_spec("lightgbm") is not None:
        yield "LightGBM", _boosted_trees(log, by_user[:, :8], by_item[:, :8])


def _boosted_trees(log: Log, by_user: np.ndarray, by_item: np.ndarray) -> Scorer:
    """A LambdaMART ranker on popularity, activity and some ALS factors."""
    from lightgbm import LGBMRanker

    popularity = np.log1p(np.bincount(log.kept.items, minlength=log.kept.n_items))
    activity = np.log1p(np.bincount(log.kept.users, minlength=log.kept.n_users))

    def features(users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.column_stack([popularity[items], activity[users], by_user[users], by_item[items]])

    rng = np.random.default_rng(0)
    sample = rng.permutation(len(log.kept))[:150_000]
    # Four random items for each positive of the sample.
    users = np.repeat(log.kept.users[sample], 5)
    items = rng.integers(0, log.kept.n_items, len(users))
    items[::5] = log.kept.items[sample]
    labels = (np.arange(len(users)) % 5 == 0).astype(int)
    order = np.argsort(users, kind="stable")
    groups = np.unique(users, return_counts=True)[1]
    ranker = LGBMRanker(n_estimators=60, num_leaves=15, verbose=-1, n_jobs=1)
    ranker.fit(features(users[order], items[order]), labels[order], group=groups)
    return lambda u, i: ranker.predict(features(u, i))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("scores"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    dataset = load_dataset(options.dataset, options.data)
    test = dataset.test
    if test is None:
        raise SystemExit(f"{options.dataset} has no randomly exposed test set.")
    options.out.mkdir(parents=True, exist_ok=True)
    log = prepare(dataset, options.seed)
    training = Training(batch=options.batch, device=options.device)
    factors = 64 if dataset.train.n_items > 1_000 else 16
    scorers = [*base_models(log, training, options.seed), *other_libraries(log, factors)]
    for name, score in scorers:
        np.savez(
            options.out / f"{options.dataset}-{name}-{options.seed}.npz",
            test_scores=score(test.users, test.items),
            test_labels=test.labels,
            pair_scores=score(log.pairs.users, log.pairs.items),
            pair_labels=log.pairs.labels,
            propensity=log.propensity,
            weights=log.weights,
            test_users=test.users,
            test_items=test.items,
            pair_users=log.pairs.users,
            pair_items=log.pairs.items,
            popularity=np.bincount(log.kept.items, minlength=log.kept.n_items),
            activity=np.bincount(log.kept.users, minlength=log.kept.n_users),
        )
        print(f"{options.dataset}, {name}: saved")


if __name__ == "__main__":
    main()
