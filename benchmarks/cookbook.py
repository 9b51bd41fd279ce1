"""The numbers that docs/adapters.md and docs/cookbook.md quote.

`python benchmarks/cookbook.py` takes a quarter of a minute.
"""

import numpy as np
from scipy.special import expit

from calibrank import ECE, Gaussian, Isotonic, ips
from calibrank.adapters import RecBole
from calibrank.data import (
    Dataset,
    Positives,
    RandomSplit,
    make_world,
    population_negatives,
    simulate,
    with_negatives,
)
from calibrank.propensity import Known
from calibrank.tables import Interactions

N_USERS, N_ITEMS = 400, 120


def clipped_scores() -> None:
    """Two calibrators on scores that are clipped to [-1, 2]."""
    world = make_world(200_000)
    test = world.redraw(1)
    evidence = ips(world.labels, world.propensity)
    scores = np.clip(world.scores, -1, 2)
    test_scores = np.clip(test.scores, -1, 2)
    at_limit = test_scores == 2
    liked = test.preferences[at_limit].mean()
    print(f"clipped to [-1, 2]: {liked:.3f} of the pairs at the upper limit are liked")
    for calibrator in (Isotonic(), Gaussian()):
        probabilities = calibrator.fit(scores, evidence).predict(test_scores)
        mean = probabilities[at_limit].mean()
        error = ECE()(probabilities, test.preferences)
        print(f"  {calibrator.name}: {mean:.3f}, ECE {error:.4f}")


def segment_sizes(rng: np.random.Generator) -> None:
    """The error of a map by the number of positives it is fitted on."""
    world = make_world(400_000)
    test = world.redraw(1)
    evidence = ips(world.labels, world.propensity)
    truth = test.probability(test.scores)
    for n_rows in (2_000, 8_000, 32_000):
        errors = []
        positives = []
        for _ in range(30):
            rows = rng.choice(len(world), n_rows, replace=False)
            fitted = Gaussian().fit(world.scores[rows], evidence.rows(rows))
            errors.append(np.abs(fitted.predict(test.scores) - truth).mean())
            positives.append(world.labels[rows].sum())
        print(
            f"a map from {np.mean(positives):.0f} positives has mean error {np.mean(errors):.4f} "
            f"where the mean probability is {truth.mean():.3f}"
        )


def ece_of_the_truth(rng: np.random.Generator) -> None:
    """The ECE that true probabilities have by chance."""
    errors = []
    for _ in range(50):
        truth = expit(0.6 * rng.normal(0, 3, 4_000) - 1.5)
        labels = (rng.random(4_000) < truth).astype(float)
        errors.append(ECE()(truth, labels))
    print(f"ECE of the true probabilities of 4,000 pairs: {np.mean(errors):.4f}")


def pairs_outside_training(seeds: int = 20) -> None:
    """Base rates outside the training log: true, and predicted by two ways of fitting."""
    names = (
        "fraction liked",
        "mean prediction, fitted for pairs outside training",
        "mean prediction, fitted for all pairs",
        "fraction logged",
    )
    rates = np.array([_rates(seed) for seed in range(seeds)])
    for name, values in zip(names, rates.T, strict=True):
        mean, deviation = values.mean(), values.std()
        print(f"outside training, {name}: {mean:.3f} (sd {deviation:.3f} over {seeds} datasets)")


def _rates(seed: int) -> tuple[float, float, float, float]:
    dataset = simulate(N_USERS, N_ITEMS, shown=N_ITEMS, seed=seed)
    propensity = Known(dataset.propensity)
    kept, held_out = RandomSplit(seed=seed).divide(dataset.train)
    rng = np.random.default_rng([seed, 2])
    adapter = _noisy_model(dataset, rng)
    table = adapter.score_table(held_out, kept, propensity)
    fitted_outside = Gaussian().fit(table.scores, table.evidence())
    positives = Positives.of(kept, held_out)
    pairs = with_negatives(held_out, positives, population_negatives(positives)[0], rng)
    evidence = ips(pairs.labels, propensity.predict(pairs.users, pairs.items))
    fitted_all = Gaussian().fit(adapter.score(pairs.users, pairs.items), evidence)
    everything = dataset.test
    outside = everything.take(~np.isin(_pair_numbers(everything), _pair_numbers(kept)))
    scores = adapter.score(outside.users, outside.items)
    return (
        float(outside.labels.mean()),
        float(fitted_outside.predict(scores).mean()),
        float(fitted_all.predict(scores).mean()),
        len(dataset.train) / len(everything),
    )


def _noisy_model(dataset: Dataset, rng: np.random.Generator) -> RecBole:
    """A model whose scores are the true log odds (up to a constant) plus noise."""
    vectors, quality = dataset.item_features[:, :4], dataset.item_features[:, 4]
    affinity = dataset.user_features @ vectors.T + quality
    noisy = affinity + rng.standard_normal(affinity.shape)
    # RecBole's matrices have a padding item in column 0.
    padded = np.column_stack([np.zeros(N_USERS), noisy])
    return RecBole(np.arange(N_USERS), padded, np.arange(-1, N_ITEMS))


def _pair_numbers(log: Interactions) -> np.ndarray:
    return log.users * N_ITEMS + log.items


if __name__ == "__main__":
    clipped_scores()
    segment_sizes(np.random.default_rng(0))
    ece_of_the_truth(np.random.default_rng(0))
    pairs_outside_training()
