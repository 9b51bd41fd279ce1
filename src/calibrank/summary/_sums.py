"""The arrays in which rows are summed, as the C, CUDA and NumPy loops share them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Sums(NamedTuple):
    """Sums per bin, one array row per bin.

    Every row of a table changes `totals`, only its positives change `positives`, and without
    weights `squares` need no loop at all. Apart, the array that is used most stays in the cache.
    """

    totals: npt.NDArray[np.float64]
    """Total, total * offset, total * offset^2, for the offset of the score from the origin."""
    positives: npt.NDArray[np.float64]
    """Positive, positive * offset, positive^2, positive * total."""
    squares: npt.NDArray[np.float64]
    """Total^2 (one dimension)."""

    @classmethod
    def zeros(cls, size: int) -> Sums:
        """Sums over no rows."""
        return cls(np.zeros((size, 3)), np.zeros((size, 4)), np.zeros(size))
