"""Reference propensities to compare an estimate with: the same for all pairs, or random."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import require_seed, seeded
from calibrank._internal.validation import Floats, Ids
from calibrank.propensity.propensity import Constant, FittedPropensity, require_probability
from calibrank.tables import Frame, Interactions, as_interactions, mix_bits


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
    """A random propensity per pair, uniform on (0, 1]: a baseline that estimates should beat.

    Values below `clip` are raised to it. An integer `seed` draws the same propensities in every
    fit; a generator draws new ones.

    >>> fitted = Random(seed=1).fit(Interactions([1, 2], ["a", "b"]))
    >>> fitted.predict([1, 2, 1], ["a", "a", "a"]).round(2)
    array([0.47, 0.12, 0.47])
    """

    seed: int | np.random.Generator = 0
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        require_seed(self.seed)

    def fit(self, interactions: Interactions | Frame) -> RandomPairs:
        """Draw a propensity for every possible pair; nothing is estimated from the log."""
        as_interactions(interactions)
        return RandomPairs(int(seeded(self.seed).integers(2**63)), self.clip)


@dataclass(frozen=True, slots=True)
class RandomPairs(FittedPropensity):
    """A propensity per pair, from a hash of its ids: no list of all pairs is needed."""

    salt: int
    clip: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        by_user = mix_bits(_numbers(users) + np.uint64(self.salt))
        mixed = mix_bits(by_user ^ _numbers(items))
        # The upper 53 bits, as many as a float has, give a number in (0, 1].
        values = ((mixed >> np.uint64(11)).astype(np.float64) + 1) / 2**53
        return np.maximum(values, self.clip)


def _numbers(names: Ids) -> npt.NDArray[np.uint64]:
    """Integer ids as they are; other ids by the hash of their text."""
    if names.dtype.kind in "iu":
        return names.astype(np.uint64)
    distinct, codes = np.unique(names, return_inverse=True)
    hashes = [zlib.crc32(str(name).encode()) for name in distinct]
    return np.array(hashes, dtype=np.uint64)[codes]
