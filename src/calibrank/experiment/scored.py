"""The scores of one trained model, saved so that figures can be drawn later."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import atomic_path
from calibrank._internal.npz import Arrays, read_compressed
from calibrank._internal.validation import Floats, column, require_role, require_scores
from calibrank.curves import Calibrator
from calibrank.errors import DataError, FlatMapWarning
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap
from calibrank.registry import EVIDENCE
from calibrank.tables import Interactions

_COLUMNS = ("users", "items", "labels")
_SCORES = ("scores", "propensity", "weights")
_LARGEST_FILE = 2**33
"""In bytes: the pairs of the largest dataset take a hundredth of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """The calibration pairs of one loss."""

    pairs: Interactions
    scores: Floats
    propensity: Floats
    weights: Floats

    def fit(self, calibrator: Calibrator, loss: str) -> CalibrationMap:
        """A calibrator fitted with a loss; the method of the paper that cannot fit is flat."""
        labels = self.pairs.labels
        evidence = naive(labels, weights=self.weights)
        if loss not in ("naive", "none"):
            evidence = EVIDENCE[loss](labels, self.propensity, weights=self.weights)
        with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
            return calibrator.fit(self.scores, evidence)


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of the test set and, by loss, of the calibration pairs with their evidence."""

    test: Interactions
    test_scores: Floats
    calibration: Mapping[str, ScoredPairs]

    def save(self, path: Path) -> None:
        """Write an .npz file, atomically."""
        arrays: dict[str, Any] = {"test_scores": self.test_scores}
        arrays |= _columns(self.test, "test")
        for loss, pairs in self.calibration.items():
            arrays |= _columns(pairs.pairs, loss)
            for name in _SCORES:
                arrays[f"{loss}_{name}"] = getattr(pairs, name)
        # Not every user and item occurs in the pairs, so the sizes are saved too.
        arrays["sizes"] = np.array([self.test.n_users, self.test.n_items])
        arrays["losses"] = np.array(list(self.calibration), dtype=str)
        with atomic_path(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Scored:
        """Read a file that `save` wrote; a damaged one is an error."""
        try:
            return cls._of(read_compressed(path, _LARGEST_FILE))
        # A missing array, and what is wrong with the others.
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(
                path,
                "be scores that calibrank saved",
                error,
                "Delete it and run the command again.",
            ) from None

    @classmethod
    def _of(cls, arrays: Arrays) -> Scored:
        calibration = {}
        for loss in arrays["losses"].tolist():
            pairs = _interactions(arrays, loss)
            columns = [column(name, arrays[f"{loss}_{name}"], len(pairs)) for name in _SCORES]
            scores, propensity, weights = columns
            require_scores(scores)
            require_role("propensity", "propensity", propensity)
            require_role("weight", "weights", weights)
            calibration[loss] = ScoredPairs(pairs, scores, propensity, weights)
        test = _interactions(arrays, "test")
        test_scores = column("scores", arrays["test_scores"], len(test))
        require_scores(test_scores)
        return cls(test, test_scores, calibration)


def _columns(table: Interactions, prefix: str) -> dict[str, Any]:
    return {f"{prefix}_{column}": getattr(table, column) for column in _COLUMNS}


def _interactions(arrays: Arrays, prefix: str) -> Interactions:
    users, items, labels = [arrays[f"{prefix}_{column}"] for column in _COLUMNS]
    n_users, n_items = arrays["sizes"].tolist()
    return Interactions(users, items, labels, n_users, n_items)
