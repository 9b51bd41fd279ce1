"""`tests.checks` accepts correct members and names the law that a broken one violates."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import calibrank as cr
from calibrank.maps import Curve, RescaleCurve
from calibrank.metrics import NDCG, Better
from calibrank.propensity import FittedPropensity, Popularity, Random
from calibrank.propensity.estimators import ByRating
from calibrank.tables import Interactions
from tests.checks import check_calibrator, check_map, check_metric, check_propensity, needs_users
from tests.members import CALIBRATORS, METRICS, PROPENSITIES, PROPENSITY_SIZE, name


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_calibrators_pass(member: cr.Calibrator) -> None:
    check_calibrator(member, examples=8, seed=np.random.default_rng(1))


@pytest.mark.parametrize("member", METRICS, ids=name)
def test_metrics_pass(member: cr.Metric) -> None:
    check_metric(member)


@pytest.mark.parametrize("member", PROPENSITIES, ids=lambda member: type(member).__name__)
def test_propensities_pass(member: object) -> None:
    check_propensity(member, users=PROPENSITY_SIZE, items=PROPENSITY_SIZE, examples=20)


def test_a_map_passes_and_need_not_be_increasing() -> None:
    scores, labels = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 1, 0, 0, 1, 0]
    check_map(cr.Gaussian().fit(scores, labels), examples=5)
    check_map(cr.Histogram(bins=5).fit(scores, labels), increasing=False, examples=5)


def test_a_map_that_decreases_is_caught() -> None:
    fitted = cr.Histogram(bins=5).fit([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 1, 0, 0, 1, 0])
    with pytest.raises(AssertionError, match="law that a higher score never gets a lower"):
        check_map(fitted)


class WithoutInterval(RescaleCurve):
    """Its lower end is above the estimate."""

    __slots__ = ()

    def interval_ends(self, scores: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        probabilities = self.probabilities(scores)
        return probabilities + 0.1, probabilities + 0.2


class OutOfRange(RescaleCurve):
    """Not clipped to [0, 1]."""

    __slots__ = ()

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return (scores - self.low) / (self.high - self.low)


class Interacting(RescaleCurve):
    """The probability depends on the highest score that is asked for."""

    __slots__ = ()

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return np.clip((scores - self.low) / (scores.max() - self.low), 0, 1)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (WithoutInterval, "intervals contain the estimate"),
        (OutOfRange, r"probabilities lie in \[0, 1\]"),
        (Interacting, "does not depend on other scores"),
    ],
)
def test_broken_maps_are_caught(kind: type[RescaleCurve], law: str) -> None:
    fitted = cr.MinMax().fit([0.0, 1.0], [0, 1])
    broken = replace(fitted, curve=kind(0.0, 1.0))
    with pytest.raises(AssertionError, match=law):
        check_map(broken, examples=5)


@dataclass(frozen=True, slots=True)
class IgnoresWeights(cr.Platt):
    """Fits every row with weight 1."""

    def fit(self, scores: object, labels: object) -> cr.CalibrationMap:
        if isinstance(labels, cr.Evidence):
            labels = labels.positive > 0
        return cr.Platt().fit(scores, labels)


@dataclass(frozen=True, slots=True)
class ClaimsToIncrease(cr.Histogram):
    """A histogram that declares itself increasing."""

    meets = cr.Isotonic.meets


@dataclass(frozen=True, slots=True)
class DependsOnOrder(cr.Platt):
    """The intercept depends on the last row."""

    def fit(self, scores: object, labels: object) -> cr.CalibrationMap:
        summary = cr.Summary.of(scores, labels)
        fitted = self.fit_summary(summary)
        return fitted.moved(float(np.asarray(scores)[-1]))


class NeverFits(cr.Platt):
    """Raises a FitError on every table."""

    __slots__ = ()

    def _fit(self, summary: cr.Summary) -> tuple[Curve, dict[str, object]]:
        raise cr.FitError("no finite best fit exists.")


@pytest.mark.parametrize(
    ("member", "law"),
    [
        (IgnoresWeights(), "weight k equals k repeated rows"),
        (ClaimsToIncrease(bins=5), "a higher score never gets a lower probability"),
        (DependsOnOrder(), "permuting rows changes nothing"),
        (NeverFits(), "must fit at least one of 20 examples"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_calibrators_are_caught(member: cr.Calibrator, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_calibrator(member, examples=20)


@dataclass(frozen=True, slots=True)
class WrongDirection(cr.Brier):
    """A loss that declares higher values better."""

    explanation = "A loss that declares higher values better."
    better = Better.HIGHER


@dataclass(frozen=True, slots=True)
class WrongRankingDirection(NDCG):
    """A gain that declares lower values better."""

    explanation = "A gain that declares lower values better."
    better = Better.LOWER


@dataclass(frozen=True, slots=True)
class Unweighted(cr.Brier):
    """The mean over rows, whatever their weight."""

    explanation = "The mean over rows, whatever their weight."

    def evaluate(self, probabilities: object, evidence: cr.Evidence, users: object) -> float:
        return float(np.mean((probabilities - (evidence.positive > 0)) ** 2))


@dataclass(frozen=True, slots=True)
class FirstRow(cr.Brier):
    """The error of the first row only."""

    explanation = "The error of the first row only."

    def evaluate(self, probabilities: object, evidence: cr.Evidence, users: object) -> float:
        return float((probabilities[0] - evidence.positive[0]) ** 2)


@pytest.mark.parametrize(
    ("member", "law"),
    [
        (WrongDirection(), "not worse than shifted ones"),
        (WrongRankingDirection(3), "not worse than inverted ones"),
        (Unweighted(), "a user of weight k equals k such users"),
        (FirstRow(), "permuting rows changes nothing"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_metrics_are_caught(member: cr.Metric, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_metric(member)


class Zero:
    """Never observed."""

    def fit(self, interactions: Interactions) -> FittedPropensity:
        return ByRating(np.zeros(0), np.zeros(0), 0.0)


class Drawn:
    """Another propensity in every fit."""

    rng = np.random.default_rng(0)

    def fit(self, interactions: Interactions) -> FittedPropensity:
        return Random(self.rng)


class UnseenIsMissing(FittedPropensity):
    """NaN for items without interactions."""

    def __init__(self, seen: np.ndarray) -> None:
        self.seen = seen

    def fit(self, interactions: Interactions) -> FittedPropensity:
        return UnseenIsMissing(np.unique(interactions.items))

    def _predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.where(np.isin(items, self.seen), 0.5, np.nan)


class FirstRowOnly(Popularity):
    """Depends on the order of the log."""

    __slots__ = ()

    def fit(self, interactions: Interactions) -> FittedPropensity:
        return ByRating(np.zeros(0), np.zeros(0), 1 / (1 + float(interactions.items[0])))


@pytest.mark.parametrize(
    ("member", "law"),
    [
        (Zero(), r"propensities lie in \(0, 1\], on example 0 of seed 0: .* got 0.0 for pair 0"),
        (UnseenIsMissing(np.zeros(0)), r"must lie in \(0, 1\], got nan"),
        (FirstRowOnly(), "permuting the log changes nothing"),
        (Drawn(), "fit and predict are deterministic"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_propensities_are_caught(member: object, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_propensity(member)


def test_metrics_over_lists_need_users() -> None:
    assert needs_users(cr.ECE() @ 2)
    assert not needs_users(cr.ECE())
