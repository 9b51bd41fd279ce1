"""Random generators from seeds."""

from __future__ import annotations

import numpy as np


def generator(
    seed: int | np.random.Generator,
    stream: int,
) -> np.random.Generator:
    """A generator as it is, or a new one from an integer seed.

    Functions that share a seed pass different `stream` numbers, so that their draws are
    independent.
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng([seed, stream])
