"""The result of `control`: which cut keeps the promises, and what to expect of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank.decisions.cuts import Cut
from calibrank.decisions.promises import Promise


@dataclass(frozen=True, slots=True)
class CutPoint:
    """One cut, and what lists are like there in these labels."""

    cut: Cut
    answer_from: float
    """Users whose best probability is lower get no answer, and are left out of the promises."""
    value: float
    length: float
    """How many rows a user is shown on average."""
    shown: float
    """The share of users who are shown anything."""
    expected: tuple[float | None, ...]
    """The precision or recall in these labels, per promise; None where nothing is shown."""
    kept: tuple[bool, ...]
    """Which promises are guaranteed here."""
    needed: float
    """About how many users would guarantee them all; infinite if these labels break one."""

    def __str__(self) -> str:
        return self.cut.words(self.value)

    @property
    def short(self) -> str:
        return f"{self.cut.name} {self.value:.3g}"

    def reached(self, number: int) -> float:
        """The share of one promise, of which none is below every share."""
        value = self.expected[number]
        return -1.0 if value is None else value


def best_of(points: Sequence[CutPoint], *, shortest: bool) -> CutPoint | None:
    """The best cut that keeps all promises, of those that answer most users."""
    kept = [point for point in points if all(point.kept)]
    if not kept:
        return None
    fewest = min(point.answer_from for point in kept)
    answering = [point for point in kept if point.answer_from == fewest]
    if shortest:
        return min(answering, key=lambda point: point.length)
    # Of equal lists the last, which has the lowest threshold.
    return max(reversed(answering), key=lambda point: point.length)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The cut that keeps all promises, or the reason why there is none.

    With a promise of recall it is the one with the shortest lists, otherwise the longest.
    """

    promises: tuple[Promise, ...]
    confidence: float
    users: int
    units: str
    """What the users are, e.g. "users" or "queries"."""
    condition: str
    """What the rows have to be, as the end of a sentence."""
    best: CutPoint | None
    """None: no cut keeps the promises."""
    curve: tuple[CutPoint, ...]
    """All cuts that were tested: what one promise costs the other."""

    @property
    def needed(self) -> int | None:
        """Without a cut: how many users are needed at least; None if these labels break a promise.

        The cut that needs fewest is lucky in these labels: with so many users there is often none.
        """
        fewest = min(point.needed for point in self.curve)
        if self.best or np.isinf(fewest):
            return None
        return max(int(np.ceil(fewest - 1e-9)), self.users + 1)

    @property
    def threshold(self) -> float | None:
        """Show what has this probability or more; None if lists are not cut by probability."""
        return self._value("threshold")

    @property
    def rank(self) -> int | None:
        """Show this many; None if lists are not cut by rank."""
        value = self._value("rank")
        return None if value is None else int(value)

    @property
    def gap(self) -> float | None:
        """Show what is at most this far below the best; None if lists are not cut by the gap."""
        return self._value("gap")

    def _value(self, name: str) -> float | None:
        return self.best.value if self.best and self.best.cut.name == name else None

    @property
    def by_cut(self) -> dict[str, CutPoint | None]:
        """The best of each kind of cut that was tried; None where none keeps the promises."""
        shortest = any(promise.grows for promise in self.promises)
        points: dict[str, list[CutPoint]] = {}
        for point in self.curve:
            points.setdefault(point.cut.name, []).append(point)
        return {name: best_of(each, shortest=shortest) for name, each in points.items()}

    def content(self) -> dict[str, Any]:
        """The result as JSON can hold it, without the curve."""
        promised = []
        for number, promise in enumerate(self.promises):
            expected = self.best.expected[number] if self.best else None
            kind = type(promise).__name__
            promised.append({"kind": kind, "at_least": promise.at_least, "expected": expected})
        return {
            "threshold": self.threshold,
            "rank": self.rank,
            "gap": self.gap,
            "answer_from": self.best.answer_from if self.best else None,
            "promises": promised,
            "confidence": self.confidence,
            self.units: self.users,
            "length": self.best.length if self.best else None,
            "shown": self.best.shown if self.best else None,
            "length_by_cut": {
                name: point.length if point else None for name, point in self.by_cut.items()
            },
            "needed": self.needed,
        }

    def __str__(self) -> str:
        return self._kept(self.best) if self.best else self._not_kept()

    def _kept(self, best: CutPoint) -> str:
        whom = f"new {self.units} like these {self.users:,}"
        if best.answer_from:
            whom += f" whose best probability is {best.answer_from:.3g} or more"
        promised = []
        for promise, expected in zip(self.promises, best.expected, strict=True):
            promised.append(f"{promise} ({_percent(expected)} in these labels)")
        return (
            f"{best}. For {whom}, {self.condition}, with {self.confidence:.0%} confidence: "
            f"{', and '.join(promised)}. Lists have {best.length:.3g} rows on average; "
            f"{_percent(best.shown)} of {self.units} are shown something.{self._other_cuts(best)}"
        )

    def _other_cuts(self, best: CutPoint) -> str:
        told = []
        for name, point in self.by_cut.items():
            if point is None:
                told.append(f"none by {name}")
            elif name != best.cut.name:
                told.append(f"{point.length:.3g} rows by {name}")
        return f" Other cuts: {', '.join(told)}." if told else ""

    def _not_kept(self) -> str:
        promised = ", and that ".join(str(promise) for promise in self.promises)
        start = f"No cut promises with {self.confidence:.0%} confidence that {promised}."
        if self.needed is not None:
            return (
                f"{start} {self.users:,} {self.units} are too few: at least {self.needed:,} are "
                "needed, and often several times as many."
            )
        return f"{start} In these labels, {'; '.join(self._best_of_each())}."

    def _best_of_each(self) -> list[str]:
        """What is lost of the other promises where one is kept in these labels."""
        told = []
        for number, promise in enumerate(self.promises):
            keeping = [each for each in self.curve if each.reached(number) >= promise.at_least]
            if not keeping:
                best = _highest(self.curve, number)
                told.append(
                    f"{promise.name} is at most {_percent(best.expected[number])} ({best.short})"
                )
            for other, second in enumerate(self.promises):
                if keeping and other != number:
                    best = _highest(keeping, other)
                    told.append(
                        f"{promise.name} of {promise.at_least:.0%} leaves {second.name} of at "
                        f"most {_percent(best.expected[other])} ({best.short})"
                    )
        return told


def _highest(points: Sequence[CutPoint], number: int) -> CutPoint:
    return max(points, key=lambda point: point.reached(number))


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"
