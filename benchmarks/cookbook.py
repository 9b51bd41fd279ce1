"""The figures that docs/adapters.md and docs/cookbook.md quote beside their recipes.

`python benchmarks/cookbook.py`, a quarter of a minute.
"""

import numpy as np
from scipy.special import expit

from calibrank import ECE, Gaussian, Interactions, Isotonic, ips
from calibrank.adapters import RecBole
from calibrank.data import Positives, RandomSplit, population_negatives, with_negatives
from calibrank.data.score_world import make_world
from calibrank.data.toy_dataset import simulate
from calibrank.propensity import Known


def clipped() -> None:
    world = make_world(200_000)
    fresh, labels = world.redraw(1), ips(world.labels, world.propensity)
    scores, news = np.clip(world.scores, -1, 2), np.clip(fresh.scores, -1, 2)
    top = news == 2
    print(
        f"clipped to [-1, 2]: {fresh.preferences[top].mean():.3f} of the pairs at the top end are liked"
    )
    for fitter in (Isotonic(), Gaussian()):
        told = fitter.fit(scores, labels).predict(news)
        print(f"  {fitter.name}: {told[top].mean():.3f}, ECE {ECE()(told, fresh.preferences):.4f}")


def segments(rng: np.random.Generator) -> None:
    world = make_world(400_000)
    fresh, labels = world.redraw(1), ips(world.labels, world.propensity)
    truth = fresh.probability(fresh.scores)
    for rows in (2_000, 8_000, 32_000):
        draws = [rng.choice(len(world), rows, replace=False) for _ in range(30)]
        errors = [
            np.abs(
                Gaussian().fit(world.scores[some], labels.rows(some)).predict(fresh.scores) - truth
            ).mean()
            for some in draws
        ]
        positives, mean = np.mean([world.labels[some].sum() for some in draws]), truth.mean()
        print(
            f"a map from {positives:.0f} positives is off by {np.mean(errors):.4f} where the mean is {mean:.3f}"
        )


def chance(rng: np.random.Generator) -> None:
    errors = []
    for _ in range(50):
        truth = expit(0.6 * rng.normal(0, 3, 4_000) - 1.5)
        errors.append(ECE()(truth, (rng.random(4_000) < truth).astype(float)))
    print(f"ECE of the true probabilities of 4,000 pairs: {np.mean(errors):.4f}")


def outside_training(seeds: int = 20) -> None:
    names = (
        "liked",
        "promised, for pairs outside training",
        "promised, for all pairs",
        "share logged",
    )
    for name, values in zip(
        names, np.transpose([_levels(seed) for seed in range(seeds)]), strict=True
    ):
        print(
            f"outside training, {name}: {values.mean():.3f} (sd {values.std():.3f} over {seeds} worlds)"
        )


def _levels(seed: int) -> tuple[float, float, float, float]:
    """What is liked outside training, and what two maps of a model of true taste and noise promise there."""
    made = simulate(400, 120, shown=120, seed=seed)
    known, everything = Known(made.propensity), made.test
    kept, held = RandomSplit(seed=seed).divide(made.train)
    rng = np.random.default_rng([seed, 2])
    taste = made.user_features @ made.item_features[:, :4].T + made.item_features[:, 4]
    noisy = taste + rng.standard_normal(taste.shape)
    adapter = RecBole(np.arange(400), np.column_stack([np.zeros(400), noisy]), np.arange(-1, 120))
    table = adapter.score_table(held, kept, known)
    outside = Gaussian().fit(table.scores, table.evidence())
    positives = Positives.of(kept, held)
    pairs = with_negatives(held, positives, population_negatives(positives)[0], rng)
    seen = known.predict(pairs.users, pairs.items)
    over_all = Gaussian().fit(adapter.score(pairs.users, pairs.items), ips(pairs.labels, seen))
    new = everything.take(~np.isin(_cells(everything), _cells(kept)))
    scores = adapter.score(new.users, new.items)
    promised = (float(fitted.predict(scores).mean()) for fitted in (outside, over_all))
    return (float(new.labels.mean()), *promised, len(made.train) / len(everything))


def _cells(log: Interactions) -> np.ndarray:
    return log.users * 120 + log.items


if __name__ == "__main__":
    clipped()
    segments(np.random.default_rng(0))
    chance(np.random.default_rng(0))
    outside_training()
