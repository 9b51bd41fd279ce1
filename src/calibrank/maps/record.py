"""What a map remembers: the data it was fitted on, how well it was solved, and where its base rate comes from."""

from dataclasses import dataclass

import numpy as np

from calibrank._json import Fields
from calibrank._logit import expit
from calibrank._validation import Floats
from calibrank.errors import DataError

BASE_RATE_SOURCES = ("assumed", "random labels", "known rate")
"""Where a map's base rate comes from."""


@dataclass(frozen=True, slots=True)
class Anchoring:
    """Random labels: how many, their effective number, and how much of each part of the curve they determined."""

    labels: int
    effective_labels: float
    intercept: float
    """Share of the prior variance of the intercept that the labels removed; likewise below."""
    slope: float
    curvature: float

    @classmethod
    def read(cls, fields: Fields) -> "Anchoring":
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        shares = (
            fields.number(name) for name in ("effective_labels", "intercept", "slope", "curvature")
        )
        return cls(fields.count("labels"), *shares)


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to turn the same log into evidence, and the mean preference it gives: of all, and of the top tenth."""

    name: str
    rate: float
    top_rate: float | None
    """None where this choice has no finite fit."""

    @classmethod
    def read(cls, fields: Fields) -> "Choice":
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        return cls(fields.text("name"), fields.number("rate"), fields.optional("top_rate"))


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What a biased log leaves open: base rates it is compatible with, and a band of log odds over the scores."""

    low_rate: float
    high_rate: float
    choices: tuple[Choice, ...]
    scores: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.scores), len(self.low), len(self.high)}
        if len(lengths) > 1 or len(self.scores) < 2:
            raise DataError(
                f"a band must have as many ends as scores, two or more, got {sorted(lengths)}."
            )
        if not 0 <= self.low_rate <= self.high_rate <= 1:
            raise DataError(
                f"a range of rates must rise within [0, 1], got {self.low_rate} to {self.high_rate}."
            )

    def ends(self, scores: Floats) -> tuple[Floats, Floats]:
        """The band's lower and upper probabilities; beyond its scores it goes on level."""
        low, high = (expit(np.interp(scores, self.scores, end)) for end in (self.low, self.high))
        return low, high

    @classmethod
    def read(cls, fields: Fields) -> "Sensitivity":
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        choices = tuple(Choice.read(each) for each in fields.children("choices"))
        band = (tuple(fields.numbers(name)) for name in ("scores", "low", "high"))
        return cls(fields.number("low_rate"), fields.number("high_rate"), choices, *band)


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a map was fitted on and how well the fit was solved; saved with it."""

    evidence: str
    rows: int
    positive: float
    total: float
    exact: bool
    loss: float | None = None
    residual: float | None = None
    iterations: int = 0
    at_bound: tuple[str, ...] = ()
    base_rate_source: str = "assumed"
    anchoring: Anchoring | None = None
    base_rate: float | None = None
    """The rate that was given, where the source is a known rate."""
    sensitivity: Sensitivity | None = None

    @classmethod
    def read(cls, fields: Fields) -> "FitRecord":
        """Rebuild a record from a saved map."""
        fields.only(*cls.__slots__)
        return cls(
            evidence=fields.text("evidence"),
            rows=fields.count("rows"),
            positive=fields.number("positive"),
            total=fields.number("total"),
            exact=fields.flag("exact"),
            loss=fields.optional("loss"),
            residual=fields.optional("residual"),
            iterations=fields.count("iterations"),
            at_bound=tuple(fields.texts("at_bound")),
            base_rate_source=_base_rate_source(fields),
            anchoring=Anchoring.read(fields.child("anchoring"))
            if fields.holds("anchoring")
            else None,
            base_rate=fields.number("base_rate") if fields.holds("base_rate") else None,
            sensitivity=Sensitivity.read(fields.child("sensitivity"))
            if fields.holds("sensitivity")
            else None,
        )


def _base_rate_source(fields: Fields) -> str:
    source = fields.text("base_rate_source")
    if source not in BASE_RATE_SOURCES:
        known = ", ".join(BASE_RATE_SOURCES)
        raise DataError(f"{fields.where}, base_rate_source must be one of {known}, got {source!r}.")
    return source
