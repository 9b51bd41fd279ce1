"""Run laws on examples, and describe the first that does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.errors import FitError

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
