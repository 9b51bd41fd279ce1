"""The third door, neither labels nor a rate: fit, and say what the log leaves open.

Propensities from popularity are relative: the most exposed item gets 1 by decree. If every propensity were really c
times as large, c below 1, all probabilities would be 1/c times as large, and the log would look the same. Two things
bound c: no propensity exceeds 1, so c is at most 1; no probability exceeds 1, so c is at least the preference seen
among the highest scores. Power, clip and the number of negatives are choices too: each is varied, and the band holds
them all.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import (
    Floats,
    Numbers,
    add_up,
    column,
    is_binary,
    is_probability,
    require,
    score_column,
    starts_of,
)
from calibrank.base_rate.shift import shift_for, top_tenth
from calibrank.calibrators.calibrator import Calibrator
from calibrank.errors import CalibrankError, DataError, FlatMapWarning
from calibrank.evidence import Evidence, ips, is_usable
from calibrank.maps import Alternative, CalibrationMap, Sensitivity
from calibrank.summary import Summary

_GROUPS = 2_000  # of scores: enough for a band
_POSITIVES = 50_000  # varied at most, evenly chosen
_BANDS = 20  # in which the highest preference is looked for
_DOUBT = 2.81  # standard errors that one of 20 bands exceeds once in twenty times
_LEAST = 1e-3  # the smallest scale of propensities thought of
_SURE = 1e-6  # the band's probabilities stay this far from 0 and 1
_SHARES = np.concatenate([[0.0, 0.002], np.linspace(0.01, 0.99, 29), [0.998, 1.0]])


@dataclass(frozen=True, slots=True)
class PropensityModel:
    """How a relative exposure becomes a propensity, and how many of the unobserved pairs count."""

    power: float = 0.5
    clip: float = 0.1
    negatives: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.power < np.inf and 0 <= self.clip <= 1 and 0 < self.negatives < np.inf):
            raise DataError(
                f"a setting must have power 0 or more, clip in [0, 1] and some negatives, got {self}."
            )

    def propensity(self, exposure: Floats) -> Floats:
        """P(observed) by this setting."""
        return np.maximum(exposure**self.power, self.clip)

    def others(self, *, scale_known: bool) -> Iterator[tuple[str, "PropensityModel"]]:
        """What else might have been chosen, with a name; propensities that are known keep their power."""
        powers = () if scale_known else (0.5, 1.5, 2.0)
        for power in (self.power * factor for factor in powers if self.power):
            yield f"power {power:g}", replace(self, power=power)
        for clip in (self.clip / 2, min(self.clip * 2, 1.0)) if self.clip else (0.05, 0.1):
            if clip != self.clip:
                yield f"clip {clip:g}", replace(self, clip=clip)
        yield "half the negatives", replace(self, negatives=self.negatives / 2)
        yield "twice the negatives", replace(self, negatives=self.negatives * 2)


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The observed pairs of a log: all that a choice of propensities changes."""

    scores: Floats
    exposure: Floats
    weights: Floats

    def some(self) -> "Positives":
        """Not too many of them, standing for all."""
        step = -(-len(self.scores) // _POSITIVES)
        return (
            Positives(self.scores[::step], self.exposure[::step], self.weights[::step] * step)
            if step > 1
            else self
        )


Weigh = Callable[..., Evidence]


def fit_with_sensitivity(
    calibrator: Calibrator,
    scores: Numbers,
    labels: Numbers,
    exposure: Numbers,
    setting: PropensityModel = PropensityModel(),  # noqa: B008  (frozen)
    *,
    scale_known: bool = False,
) -> CalibrationMap:
    """Fit by `ips`, and attach to the map what the log cannot tell: `record.sensitivity` and `map.band(scores)`.

    `exposure` is relative, 1 for what is seen most, such as an item's count over the highest count. If it is
    P(observed) itself, say so: `PropensityModel(power=1, clip=0)` and `scale_known=True`.

    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> scores, exposure = rng.normal(size=2000), rng.uniform(0.2, 1, 2000)
    >>> labels = rng.random(2000) < exposure * 0.3 / (1 + np.exp(-scores))
    >>> fitted = fit_with_sensitivity(Platt(), scores, labels, exposure)
    >>> low, high = fitted.band([0.0])
    >>> bool(low < fitted.predict([0.0]) < high)
    True
    """
    array = score_column(scores)[0]
    labels = column("labels", labels, len(array))
    require(is_binary, "labels", "be 0 or 1", labels, "Turn ratings into likes first.")
    exposure = column("exposure", exposure, len(array))
    require(is_probability, "exposure", "lie in [0, 1]", exposure, "Divide by the highest.")
    if setting.clip == 0:
        liked_at = np.where(labels == 1, exposure, 1.0)
        require(
            is_usable,
            "exposure",
            "be above 0 where a pair is liked",
            liked_at,
            "Clip, or mend the propensities.",
        )
        exposure = np.where(labels == 1, exposure, 1.0)
    weights = np.where(labels == 1, 1.0, setting.negatives)
    summary = Summary.of(array, ips(labels, setting.propensity(exposure), weights=weights))
    liked = labels == 1
    positives = Positives(array[liked], exposure[liked], np.ones(int(liked.sum())))
    fitted = calibrator.fit_summary(summary)
    return with_sensitivity(
        fitted, calibrator, summary, positives, setting, scale_known=scale_known
    )


def with_sensitivity(
    fitted: CalibrationMap,
    calibrator: Calibrator,
    summary: Summary,
    positives: Positives,
    setting: PropensityModel,
    weigh: Weigh = ips,
    *,
    scale_known: bool,
) -> CalibrationMap:
    """The map with its sensitivity attached; at the door of a known base rate, every choice is moved to it."""
    if fitted.record.base_rate_source == "random labels" or not calibrator.learns:
        return fitted  # labels have closed the band; and what learns nothing has none
    rate = fitted.record.base_rate
    groups = _Groups.of(summary, positives.some(), setting, weigh)
    where = np.interp(_SHARES, _shares(groups.total), groups.scores)
    where = where[starts_of(where)]
    if len(where) < 2:
        return fitted
    others = tuple(setting.others(scale_known=scale_known))
    curves = list(groups.curves(fitted, calibrator, (("as chosen", setting), *others), where, rate))
    levels = [1.0 if scale_known or rate is not None else curve.most for curve in curves]
    below, above = _sampling(fitted, where)
    low = np.min([curve.log_odds for curve in curves], axis=0) - below
    high = np.max(
        [_raised(curve.log_odds + above, most) for curve, most in zip(curves, levels, strict=True)],
        axis=0,
    )
    rates = [curve.choice.rate for curve in curves]
    sensitivity = Sensitivity(
        low_rate=min(rates),
        high_rate=max(min(each / most, 1.0) for each, most in zip(rates, levels, strict=True)),
        alternatives=tuple(curve.choice for curve in curves),
        scores=tuple(where.tolist()),
        low=tuple(_within(low).tolist()),
        high=tuple(_within(high).tolist()),
    )
    return replace(fitted, record=replace(fitted.record, sensitivity=sensitivity))  # type: ignore[type-var]  # dataclasses all


def _sampling(fitted: CalibrationMap, where: Floats) -> tuple[Floats, Floats]:
    """How far the fit's own interval reaches below and above, in log odds."""
    middle, ends = _within(fitted.log_odds(where)), fitted.interval(where)
    return np.maximum(middle - _logit(ends.low), 0), np.maximum(_logit(ends.high) - middle, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """One choice's answer over the band's scores."""

    choice: Alternative
    log_odds: Floats
    most: float
    """The highest preference of any band of scores, at least: how small the scale of propensities can be."""


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """A log by groups of scores: unobserved mass, and which group each positive is in."""

    scores: Floats
    unobserved: Floats
    homes: np.ndarray[tuple[int], np.dtype[np.intp]]
    positives: Positives
    weigh: Weigh
    kind: str

    @classmethod
    def of(
        cls, summary: Summary, positives: Positives, setting: PropensityModel, weigh: Weigh
    ) -> "_Groups":
        total = summary.total.sum()
        group = np.minimum(
            (np.cumsum(summary.total) - summary.total) * _GROUPS // total, _GROUPS - 1
        )
        first = starts_of(group)
        group = np.cumsum(first) - 1
        masses = add_up(group, summary.total)
        scores = add_up(group, summary.total * summary.scores) / masses
        homes = np.maximum(
            np.searchsorted(summary.scores[first], positives.scores, side="right") - 1, 0
        )
        own = weigh(
            np.ones(len(homes)), setting.propensity(positives.exposure), weights=positives.weights
        ).total
        unobserved = np.maximum(masses - add_up(homes, own, len(masses)), 0) / setting.negatives
        return cls(scores, unobserved, homes, positives, weigh, summary.kind)

    @property
    def total(self) -> Floats:
        return self.unobserved + add_up(self.homes, self.positives.weights, len(self.scores))

    def evidence(self, setting: PropensityModel) -> tuple[Evidence, Floats]:
        """The log by a setting, and each group's sum of squared positives."""
        size, positives = len(self.scores), self.positives
        ones = np.ones(len(self.homes))
        each = self.weigh(ones, setting.propensity(positives.exposure), weights=positives.weights)
        positive, heard = (add_up(self.homes, mass, size) for mass in (each.positive, each.total))
        total = np.maximum(self.unobserved * setting.negatives + heard, 1e-300)
        return Evidence.trusted(positive, total, self.kind), add_up(
            self.homes, each.positive**2, size
        )

    def curves(
        self,
        fitted: CalibrationMap,
        calibrator: Calibrator,
        settings: Sequence[tuple[str, PropensityModel]],
        where: Floats,
        rate: float | None,
    ) -> Iterator[_Curve]:
        chosen: CalibrationMap | None = None
        for place, (name, other) in enumerate(settings):
            evidence, squares = self.evidence(other)
            varied = self._fit(calibrator, evidence)
            chosen = varied if place == 0 else chosen
            mass = evidence.total / evidence.total.sum()
            mean = (
                min(float(evidence.positive.sum() / evidence.total.sum()), 1.0)
                if rate is None
                else rate
            )
            if (
                chosen is None or varied is None
            ):  # the fit's own shape, then, at this choice's level
                own = _within(fitted.log_odds(self.scores))
                level = shift_for(own, mass, min(mean, 1 - _SURE))
                yield _Curve(
                    Alternative(name, mean, None), _within(fitted.log_odds(where)) + level, 1.0
                )
                continue
            moved = _moved(fitted, chosen, varied, self.scores)
            shift = 0.0 if rate is None else shift_for(moved, mass, rate)
            top = float(top_tenth(self.scores, mass) @ expit(moved + shift))
            curve = _moved(fitted, chosen, varied, where) + shift
            yield _Curve(Alternative(name, mean, top), curve, _most(evidence, squares))

    def _fit(self, calibrator: Calibrator, evidence: Evidence) -> CalibrationMap | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlatMapWarning)
                return calibrator.fit(self.scores, evidence)
        except CalibrankError:
            return None


def _moved(
    fitted: CalibrationMap, chosen: CalibrationMap, varied: CalibrationMap, scores: Floats
) -> Floats:
    """The fit's log odds as another choice moves them: groups are coarse, only the movement is taken from them."""
    now, before, after = (_within(each.log_odds(scores)) for each in (fitted, chosen, varied))
    return _within(now + after - before)


def _most(evidence: Evidence, squares: Floats) -> float:
    """The highest preference of any band of scores, less the doubt of sampling."""
    band = np.minimum((_shares(evidence.total) * _BANDS).astype(np.intp), _BANDS - 1)
    positive, total, squared = (
        add_up(band, mass, _BANDS) for mass in (evidence.positive, evidence.total, squares)
    )
    heard = total > 0
    lower = (positive[heard] - _DOUBT * np.sqrt(squared[heard])) / total[heard]
    overall = (evidence.positive.sum() - _DOUBT * np.sqrt(squares.sum())) / evidence.total.sum()
    return float(np.clip(max(lower.max(), overall), _LEAST, 1))


def _raised(log_odds: Floats, most: float) -> Floats:
    """Log odds of probabilities 1/most times as high."""
    return _logit(np.minimum(expit(log_odds) / most, 1))


def _within(log_odds: Floats) -> Floats:
    return np.clip(log_odds, logit(_SURE), logit(1 - _SURE))


def _logit(probabilities: Floats) -> Floats:
    return logit(np.clip(probabilities, _SURE, 1 - _SURE))


def _shares(mass: Floats) -> Floats:
    """Where each group stands, from 0 to 1."""
    return (np.cumsum(mass) - mass / 2) / mass.sum()
