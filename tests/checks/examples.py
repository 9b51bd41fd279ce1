"""Random examples, and how laws are run on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Ids
from calibrank.errors import FitError
from calibrank.tables import Interactions

# Large enough for bins and lists, small enough for hundreds of fits per second.
_ROWS = (12, 60)
_USERS = 6


class Example(NamedTuple):
    """A small table: one score, label, propensity and user per row."""

    scores: Floats
    labels: Floats
    propensity: Floats
    users: Ids

    def take(self, rows: Ids | slice) -> Example:
        """Some of the rows, by number, mask or slice."""
        return Example(
            self.scores[rows], self.labels[rows], self.propensity[rows], self.users[rows]
        )

    def probe(self) -> Floats:
        """Increasing scores to evaluate a map at: within the range, at its ends, far outside."""
        low = float(self.scores.min())
        high = float(self.scores.max())
        return probe_between(low, high)


class Log(NamedTuple):
    """Interactions of users and items that are numbered from 0."""

    interactions: Interactions
    n_users: int
    n_items: int


def probe_between(low: float, high: float) -> Floats:
    """Increasing scores within [low, high] and up to a thousand widths outside."""
    width = high - low
    below = low - width * np.geomspace(1e3, 0.01, 9)
    above = high + width * np.geomspace(0.01, 1e3, 9)
    return np.concatenate([below, np.linspace(low, high, 101), above])


def draw_example(rng: np.random.Generator, *, log_scale: float = 2.0) -> Example:
    """Rows of both classes, with ties in half of the examples.

    Scores have any offset and a scale of up to 10 ** `log_scale`, or its inverse.
    """
    rows = int(rng.integers(*_ROWS, endpoint=True))
    scores = rng.normal(0, 1, rows)
    if rng.random() < 0.5:
        scores = np.round(scores, 1)
    slope = rng.uniform(-0.5, 2)
    labels = (rng.random(rows) < expit(slope * scores)).astype(np.float64)
    labels[:2] = [0, 1]
    offset = rng.choice([0.0, 0.0, 3.0, -20.0])
    scale = 10 ** rng.uniform(-log_scale, log_scale)
    propensity = rng.uniform(0.3, 1, rows)
    users = rng.integers(0, _USERS, rows)
    # The first two rows differ in their label, so that some user has both classes.
    users[1] = users[0]
    return Example((scores + offset) * scale, labels, propensity, users)


def draw_log(rng: np.random.Generator, n_users: int, n_items: int) -> Log:
    """A log of positives and negatives in which the last item never occurs."""
    rows = int(rng.integers(1, 40, endpoint=True))
    users = rng.integers(0, n_users, rows)
    items = rng.integers(0, max(n_items - 1, 1), rows)
    labels = (rng.random(rows) < 0.7).astype(np.float64)
    labels[0] = 1
    interactions = Interactions(users, items, labels, n_users, n_items)
    return Log(interactions, n_users, n_items)


# The repr of a map lists all its steps.
_LONGEST_NAME = 80

Subject = TypeVar("Subject")
Drawn = TypeVar("Drawn")
Law = Callable[[Subject, Drawn], None]
"""Raises an AssertionError with a detail if the subject breaks the law on the drawn example."""


def check_laws(
    subject: Subject,
    laws: Mapping[str, Law[Subject, Drawn]],
    drawn: list[Drawn],
    seed: int | np.random.Generator,
    skipped: type[Exception] = FitError,
) -> None:
    """Check every law on every example.

    A fit may have no optimum on an example, and a metric no value (`skipped` is what it then
    raises); each law must be checked at least once.
    """
    name = _shortened(repr(subject))
    for statement, law in laws.items():
        checked = 0
        reason = ""
        for number, example in enumerate(drawn):
            try:
                law(subject, example)
            except skipped as error:
                reason = str(error)
                continue
            except AssertionError as error:
                raise AssertionError(
                    f"{name} breaks the law that {statement}, "
                    f"on example {number} of seed {seed}: {error}"
                ) from None
            checked += 1
        if not checked:
            raise AssertionError(
                f"{name} must fit at least one of {len(drawn)} examples to check "
                f"that {statement}, got a {skipped.__name__} on each: {reason}"
            )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "..."


def ensure(condition: object, detail: str) -> None:
    """Raise an AssertionError with the detail unless the condition holds."""
    if not condition:
        raise AssertionError(detail)


def ensure_each(holds: npt.NDArray[np.bool_], scores: Floats, values: Floats, rule: str) -> None:
    """Require a condition of every value; the detail names the first score that breaks it."""
    if holds.all():
        return
    first = int(np.argmin(holds))
    raise AssertionError(f"{rule}, got {values[first]} at score {scores[first]}.")


def ensure_close(
    actual: Floats, expected: Floats, scores: Floats, what: str, tolerance: float
) -> None:
    """Require two arrays of probabilities to agree; the detail names the largest difference."""
    ensure(actual.shape == expected.shape, f"{what} must have one probability per score.")
    differences = np.abs(actual - expected)
    # A comparison with NaN is false, so NaN fails as well.
    if (differences <= tolerance).all():
        return
    worst = int(np.argmax(np.nan_to_num(differences, nan=np.inf)))
    raise AssertionError(
        f"{what} must be equal to within {tolerance}, "
        f"got {actual[worst]} and {expected[worst]} at score {scores[worst]}."
    )
