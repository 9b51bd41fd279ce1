"""Reference propensities to compare an estimate with: the same for all pairs, or random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._arguments import require_seed, seeded
from calibrank.propensity.propensity import (
    ByItem,
    Constant,
    require_probability,
)
from calibrank.tables import Frame, Interactions, as_interactions


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every pair is observed with the same probability; with 1, `ips` equals `naive`.

    >>> Uniform(0.5).fit(Interactions([1], [1])).predict([1, 2], [3, 4])
    array([0.5, 0.5])
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        require_probability("value", self.value)

    def fit(self, interactions: Interactions | Frame) -> Constant:
        """A constant; nothing is estimated from the log."""
        as_interactions(interactions)
        return Constant(self.value)


@dataclass(frozen=True, slots=True)
class Random:
    """A random propensity in [clip, 1] per item: a baseline that every estimate should beat.

    An integer `seed` draws the same propensities in every fit; a generator draws new ones.

    >>> fitted = Random(seed=1).fit(Interactions([1, 2], ["a", "b"]))
    >>> bool((fitted.predict([1], ["a"]) == fitted.predict([2], ["a"])).all())
    True
    """

    seed: int | np.random.Generator = 0
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        require_seed(self.seed)

    def fit(self, interactions: Interactions | Frame) -> ByItem:
        """Draw one propensity per item of the log; other items get the mean of the range."""
        items = np.unique(as_interactions(interactions).items)
        rng = seeded(self.seed)
        values = rng.uniform(self.clip, 1, len(items))
        return ByItem(items, values, (1 + self.clip) / 2)
