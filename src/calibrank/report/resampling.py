"""Intervals of many ratios at once, over resampled groups of users."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank._validation import Floats, add_up
from calibrank.report.ledger import Codes

RESAMPLES = 400
_Z = 1.96
_FEW = 10
"""Groups of users too few to resample."""


class Ratios(NamedTuple):
    """Values with 95 % intervals, one a cell; not a number where a cell is empty."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Groups of rows that are drawn together, and how often each is drawn in each resample."""

    groups: Codes
    size: int
    draws: Floats

    @classmethod
    def of(cls, groups: Codes, seed: int = 0) -> "Clusters":
        size = int(groups.max()) + 1
        rng = np.random.default_rng(seed)
        draws = rng.multinomial(size, np.full(size, 1 / size), size=RESAMPLES).astype(np.float64)
        return cls(groups, size, draws)

    def sums(self, cells: Codes, mass: Floats, size: int, rows: Codes | None = None) -> Floats:
        """The mass in each cell (columns), by group (lines); of some rows only, where named."""
        groups = self.groups if rows is None else self.groups[rows]
        return add_up(groups * size + cells, mass, self.size * size).reshape(self.size, size)

    def ratios(
        self, above: Floats, below: Floats, rows: Floats, shift: Floats | None = None
    ) -> Ratios:
        """Sums `above` over sums `below`, less a shift that is a ratio over `below` too.

        Where no group differs (nothing liked, or everything), resampling sees no doubt, and where groups are few it
        sees too little: Wilson's interval, for as many trials as there are rows or groups, is the least taken then.
        """
        plain = above if shift is None else above - shift
        mass = below.sum(axis=0)
        filled = mass > 0
        value = np.divide(plain.sum(axis=0), mass, out=np.full(len(mass), np.nan), where=filled)
        drawn_below = self.draws @ below
        drawn = np.divide(
            self.draws @ plain,
            drawn_below,
            out=np.broadcast_to(value, drawn_below.shape).copy(),
            where=drawn_below > 0,
        )
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        rate = np.clip(
            np.divide(above.sum(axis=0), mass, out=np.zeros(len(mass)), where=filled), 0, 1
        )
        groups = np.count_nonzero(below > 0, axis=0)
        certain = (rate == 0) | (rate == 1)
        trials = np.where(
            groups < _FEW, np.maximum(groups, 1), np.where(certain, np.maximum(rows, 1), np.inf)
        )
        wide = _wilson(rate, trials) - rate + value
        low, high = np.minimum(low, wide[0]), np.maximum(high, wide[1])
        return Ratios(value, np.minimum(low, value), np.maximum(high, value))


def _wilson(rate: Floats, trials: Floats) -> Floats:
    """Both ends of Wilson's interval, one line each."""
    doubt = _Z**2 / trials
    centre = (rate + doubt / 2) / (1 + doubt)
    reach = np.sqrt(doubt * (rate * (1 - rate) + doubt / 4)) / (1 + doubt)
    return np.array([centre - reach, centre + reach])
