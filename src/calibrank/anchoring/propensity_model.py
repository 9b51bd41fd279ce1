"""A propensity model and the positives it applies to: what a sensitivity analysis varies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats
from calibrank.propensity.popularity import power_law

_POWER_FACTORS = (0.5, 1.5, 2.0)
_CLIPS_FOR_UNCLIPPED = (0.05, 0.1)
# A sample of this size determines the band.
_MAX_POSITIVES = 50_000


@dataclass(frozen=True, slots=True)
class PropensityModel:
    """How relative exposure becomes a propensity, and the weight of unobserved pairs.

    The propensity is exposure ** power, at least `clip`. `negatives` is the weight of each
    unobserved pair in the fit.
    """

    power: float = 0.5
    clip: float = 0.1
    negatives: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", real("power", self.power, "[0, inf)"))
        object.__setattr__(self, "clip", real("clip", self.clip, "[0, 1]"))
        object.__setattr__(self, "negatives", real("negatives", self.negatives, "(0, inf)"))

    def propensity(self, exposure: Floats) -> Floats:
        """P(observed) of pairs with this relative exposure."""
        return power_law(exposure, self.power, self.clip)

    def alternatives(self, *, scale_known: bool) -> Iterator[tuple[str, PropensityModel]]:
        """Other plausible models, each with a name; known propensities keep their power.

        No propensity exceeds 1, so the rate if all pairs were exposed is a lower limit.
        """
        if self.power and not scale_known:
            yield "all pairs exposed", replace(self, power=0.0)
            for factor in _POWER_FACTORS:
                power = self.power * factor
                yield f"power {power:g}", replace(self, power=power)
        clips = _CLIPS_FOR_UNCLIPPED
        if self.clip:
            clips = (self.clip / 2, min(self.clip * 2, 1.0))
        for clip in clips:
            if clip != self.clip:
                yield f"clip {clip:g}", replace(self, clip=clip)
        yield "half the negatives", replace(self, negatives=self.negatives / 2)
        yield "twice the negatives", replace(self, negatives=self.negatives * 2)


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The observed positives of a log: the only rows whose evidence a propensity model changes."""

    scores: Floats
    exposure: Floats
    weights: Floats

    def sample(self) -> Positives:
        """Every n-th positive with n times the weight, if there are very many."""
        step = -(-len(self.scores) // _MAX_POSITIVES)
        if step <= 1:
            return self
        return Positives(self.scores[::step], self.exposure[::step], self.weights[::step] * step)
