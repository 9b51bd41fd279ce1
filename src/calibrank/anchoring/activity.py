"""A base rate that is assumed from how the share of likes falls with a user's activity.

Where users choose what they see, the share of likes among shown pairs is too high, and most so for
users who see little: they choose only what they like. If a pair's being shown and its being liked
share one latent dependence (a copula), and a user's activity says little about what the user likes,
the share of likes at different activities determines the base rate.

Both conditions are assumptions. A log can fit the model perfectly and have another base rate, as
where people who see more also like more. The band is therefore the union over three families of
dependence and over a bounded dependence of liking on activity, of all rates whose fit is not
rejected. The assumption itself is tested too: where no family fits unless liking depends on
activity, the method refuses. All settings were chosen on synthetic worlds, before any real data
were looked at. About 100 labels of randomly shown pairs test the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from calibrank._internal.arguments import instance, real
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.anchoring.known_rate import to_base_rate
from calibrank.errors import DataError, FitError
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary
from calibrank.tables import Frame, Interactions, as_interactions

LARGEST_DEPENDENCE = 0.75
"""How much the log odds of liking may change per standard deviation of log activity."""
GROUPS = 8
"""Groups of users by activity, with about the same number of shown pairs each."""
LEAST_USERS = 200
LEAST_RATIO = 3.0
"""The most active group must have this many times the activity of the least active one."""

MODEL_ERROR = 0.1
"""Standard deviation of a group's log odds around any family: none of them is exactly right."""

# The 95% quantile of chi-square with `GROUPS` degrees of freedom: no parameter is fitted, every
# combination of parameters is tested.
_CRITICAL = 15.51
_RATES = expit(np.linspace(-6.5, 4.5, 89))
# Kendall's tau of the dependence between being shown and being liked.
_TAUS = np.linspace(0.0, 0.96, 49)
_DEPENDENCES = LARGEST_DEPENDENCE * np.linspace(-1, 1, 7)
_NODES = 16
_REMEDY = "Collect labels of randomly shown pairs instead."


@dataclass(frozen=True, slots=True)
class AssumedRate:
    """A base rate with the band of all rates that are compatible with a log of impressions."""

    rate: float
    low: float
    high: float
    families: tuple[str, ...]
    """The families of dependence that were not rejected."""

    def __post_init__(self) -> None:
        for name in ("low", "high", "rate"):
            real(name, getattr(self, name), "(0, 1)")
        if not self.low <= self.rate <= self.high:
            raise DataError(
                "rate", f"lie within its band, {self.low:g} to {self.high:g}", f"{self.rate:g}"
            )

    def __str__(self) -> str:
        return (
            f"base rate {self.rate:.2%}, assumed from activity ({self.low:.2%} to {self.high:.2%}; "
            f"{', '.join(self.families)}). This assumes that a user's activity says little about "
            "what the user likes. About 100 labels of randomly shown pairs would test it."
        )


def assume_rate_from_activity(shown: Interactions | Frame) -> AssumedRate:
    """The base rate of a log of impressions, from the share of likes at different activities.

    The activity of a user is the share of all items that the user was shown. Raises a `FitError`
    where the log cannot tell: activity that hardly differs, few users, or shares of likes that no
    family explains as long as liking does not depend on activity.
    """
    groups = _Groups.of(as_interactions(shown))
    accepted: list[float] = []
    best: dict[str, tuple[float, float]] = {}
    for name, share in _FAMILIES.items():
        rates, misfits, at_centre = _fit(groups, share)
        found = rates[misfits <= _CRITICAL].tolist()
        if found:
            accepted += found
            best[name] = at_centre
    if not best or min(misfit for _, misfit in best.values()) > _CRITICAL:
        raise FitError(
            "the share of likes by activity",
            "fit a dependence of being shown on being liked",
            "none that does: users who see more seem to like more, or less",
            f"The base rate cannot be assumed from this log. {_REMEDY}",
        )
    low, high = min(accepted), max(accepted)
    # The Gaussian family is between the other two in its tails.
    chosen = "Gaussian" if "Gaussian" in best else min(best, key=lambda name: best[name][1])
    rate = min(max(best[chosen][0], low), high)
    return AssumedRate(rate, low, high, tuple(best))


def to_assumed_rate(
    fitted: CalibrationMap, assumed: AssumedRate, population: Floats | Summary
) -> CalibrationMap:
    """Move a map to an assumed base rate; the record keeps its band, and calls it assumed."""
    instance("assumed", assumed, AssumedRate, "Make it with assume_rate_from_activity.")
    low = min(assumed.low, assumed.rate * (1 - 1e-6))
    high = max(assumed.high, assumed.rate + (1 - assumed.rate) * 1e-6)
    moved = to_base_rate(fitted, assumed.rate, population, rate_range=(low, high))
    return replace(moved, record=replace(moved.record, base_rate_source="assumed"))


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Users grouped by activity."""

    activity: Floats
    """Share of all items that users of the group were shown."""
    share: Floats
    """Share of likes among shown pairs."""
    variance: Floats
    """Of the share, from the differences between users."""
    users: Floats
    """Share of all users."""

    @classmethod
    def of(cls, log: Interactions) -> _Groups:
        _, codes = np.unique(log.users, return_inverse=True)
        shown = np.bincount(codes).astype(np.float64)
        likes = np.bincount(codes, log.labels).astype(np.float64)
        if len(shown) < LEAST_USERS:
            rule = f"have at least {LEAST_USERS} users to assume a base rate from their activity"
            raise FitError("the log", rule, len(shown), _REMEDY)
        if not 0 < likes.sum() < shown.sum():
            remedy = "Pass the log of all pairs that were shown."
            raise DataError("labels", "hold likes and dislikes", "one of them only", remedy)
        order = np.argsort(shown, kind="stable")
        shown, likes = shown[order], likes[order]
        # Ties stay together: users of the same activity are in the same group.
        before = np.concatenate([[0.0], np.cumsum(shown)])[np.searchsorted(shown, shown)]
        part = np.floor(before / shown.sum() * GROUPS).astype(np.intp)
        _, group = np.unique(part, return_inverse=True)
        total = np.bincount(group, shown)
        share = np.bincount(group, likes) / total
        residuals = likes - shown * share[group]
        size = np.bincount(group).astype(np.float64)
        # The variance of a ratio of sums over users; binomial at the least.
        variance = np.bincount(group, residuals**2) / total**2 * size / np.maximum(size - 1, 1)
        variance = np.maximum(variance, np.maximum(share * (1 - share), 1 / total) / total)
        variance = variance + (MODEL_ERROR * share * (1 - share)) ** 2
        activity = total / size / log.n_items
        ratio = activity[-1] / activity[0]
        if len(total) < GROUPS // 2 or ratio < LEAST_RATIO:
            rule = f"differ by a factor of {LEAST_RATIO:g} or more to assume a base rate from it"
            raise FitError("the activity of users", rule, f"{ratio:.2g}", _REMEDY)
        return cls(np.minimum(activity, 1.0), share, variance, size / size.sum())

    @property
    def standardised(self) -> Floats:
        """Log activity with mean 0 and standard deviation 1 over users."""
        logs = np.log(self.activity)
        centred = logs - self.users @ logs
        return centred / np.sqrt(self.users @ centred**2)


Share = Callable[[Floats, Floats, float], Floats]
"""The share of likes among shown pairs, by activity, base rate and Kendall's tau."""


def _fit(groups: _Groups, share: Share) -> tuple[Floats, Floats, tuple[float, float]]:
    """Base rates with their smallest misfit over all dependences, and the best with none."""
    rates = []
    misfits = []
    best = (float("nan"), float("inf"))
    for dependence in _DEPENDENCES:
        by_group = expit(logit(_RATES)[:, None] + dependence * groups.standardised)
        predicted = np.array([share(groups.activity, by_group, tau) for tau in _TAUS.tolist()])
        misfit = ((predicted - groups.share) ** 2 / groups.variance).sum(axis=2).min(axis=0)
        rates.append(by_group @ groups.users)
        misfits.append(misfit)
        if dependence == 0:
            place = int(misfit.argmin())
            best = (float(rates[-1][place]), float(misfit[place]))
    return np.concatenate(rates), np.concatenate(misfits), best


def _gaussian(activity: Floats, rates: Floats, tau: float) -> Floats:
    from scipy.special import ndtr, ndtri  # noqa: PLC0415  (slow to load)

    correlation = np.sin(np.pi * tau / 2)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # The mean of P(liked | latent u) over the shown pairs, u in (0, activity).
    latent = ndtri((nodes + 1) / 2 * activity[:, None])
    scaled = (ndtri(rates)[..., None] - correlation * latent) / np.sqrt(1 - correlation**2)
    return np.asarray(ndtr(scaled) @ (weights / 2))


def _clayton(activity: Floats, rates: Floats, tau: float) -> Floats:
    if tau == 0:
        return rates
    theta = 2 * tau / (1 - tau)
    # (a^-t + r^-t - 1)^(-1/t) / a, in logarithms to avoid overflow.
    first, second = -theta * np.log(activity), -theta * np.log(rates)
    larger = np.maximum(first, second)
    inner = np.exp(first - larger) + np.exp(second - larger) - np.exp(-larger)
    return np.exp(-(larger + np.log(inner)) / theta) / activity


def _frank(activity: Floats, rates: Floats, tau: float) -> Floats:
    if tau == 0:
        return rates
    theta = np.interp(tau, *_frank_table())
    product = np.expm1(-theta * activity) * np.expm1(-theta * rates)
    # Rounding may leave the whole mass, of which the logarithm would be infinite.
    ratio = np.maximum(product / np.expm1(-theta), -1 + 1e-15)
    return -np.log1p(ratio) / theta / activity


@cache
def _frank_table() -> tuple[Floats, Floats]:
    """Kendall's tau, 1 - 4/t (1 - D(t)) with Debye's function D, and the parameter t."""
    parameters = np.geomspace(1e-3, 200, 2_000)
    points = parameters[:, None] * (np.arange(400) + 0.5) / 400
    debye = (points / np.expm1(points)).mean(axis=1)
    return 1 - 4 / parameters * (1 - debye), parameters


_FAMILIES: dict[str, Share] = {"Gaussian": _gaussian, "Clayton": _clayton, "Frank": _frank}
