"""Options of `calibrank fit` about the base rate: known, or assumed from the activity of users."""

from typing import Annotated, NamedTuple

import typer

from calibrank.anchoring import assume_rate_from_activity, to_assumed_rate, to_base_rate
from calibrank.cli.console import SMALLEST_FRACTION, UsageError, log, shown
from calibrank.data.table import load_table
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary

BaseRateOption = Annotated[
    float | None,
    typer.Option(help="The fraction of all pairs in TABLE that users like, if it is known."),
]
BaseRateRangeOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        help="With --base-rate: the lowest and the highest rate that is plausible (a 95% interval)."
        " Random labels (--anchor) are weighed against it."
    ),
]
TopRateOption = Annotated[
    float | None,
    typer.Option(
        help="With --base-rate: the fraction liked among the tenth of TABLE with the highest "
        "scores, if it is known. It sets the slope."
    ),
]
ActivityOption = Annotated[
    str | None,
    typer.Option(
        help="Table of all pairs that were shown, with user, item and label: assume the base rate "
        "from how the share of likes falls with users' activity."
    ),
]


class Rates(NamedTuple):
    """What options say about the base rate: labels of random pairs, a known rate, or activity."""

    anchor: str | None
    anchor_propensity: str | None
    base_rate: float | None
    base_rate_range: tuple[float, float] | None
    top_rate: float | None
    activity: str | None

    @property
    def moves(self) -> bool:
        """Whether the map is moved to a rate, which only a parametric one can be."""
        return self.base_rate is not None or self.activity is not None

    def require_valid(self, loss: str | None) -> None:
        """Check the options before the table is read."""
        self._require_consistent()
        if loss == "positive-ips" and (self.anchor is not None or self.base_rate is not None):
            raise UsageError(
                "--anchor and --base-rate must go with --loss ips, impressions or naive, got "
                "positive-ips, which counts a positive as more than one pair: the table's scores "
                "would not be those of the population."
            )
        if self.base_rate is not None and not SMALLEST_FRACTION <= self.base_rate < 1:
            raise UsageError(
                f"--base-rate must lie between 0 and 1, got {self.base_rate}. It is the fraction "
                "of all pairs that are liked."
            )
        _require_valid_range(self.base_rate, self.base_rate_range)
        _require_valid_top_rate(self.base_rate, self.top_rate)

    def _require_consistent(self) -> None:
        known = self.base_rate is not None
        if self.anchor is not None and known and self.base_rate_range is None:
            raise UsageError(
                "--anchor and --base-rate must not both be given without --base-rate-range: the "
                "labels of randomly shown pairs already determine the base rate. Give the range "
                "of the rate, and the labels are weighed against it."
            )
        if self.activity is not None and known:
            raise UsageError(
                "--activity and --base-rate must not both be given: a rate that is known need not "
                "be assumed."
            )
        if self.anchor_propensity is not None and self.anchor is None:
            raise UsageError(
                "--anchor-propensity must go with --anchor, whose table has the column."
            )

    def move(
        self,
        fitted: CalibrationMap,
        summary: Summary,
        user: str | None,
        item: str | None,
        positive: str | None,
    ) -> CalibrationMap:
        """The map at the base rate that is known, or that the log of all shown pairs suggests."""
        if self.activity is not None:
            dataset = load_table(
                self.activity, None, user, item, log="impressions", positive=positive
            )
            assumed = assume_rate_from_activity(dataset.train)
            log.print(shown(f"{self.activity}: {assumed}"), highlight=False, soft_wrap=True)
            return to_assumed_rate(fitted, assumed, summary)
        if self.base_rate is not None:
            return to_base_rate(
                fitted, self.base_rate, summary, self.top_rate, self.base_rate_range
            )
        return fitted


def _require_valid_range(
    base_rate: float | None,
    base_rate_range: tuple[float, float] | None,
) -> None:
    if base_rate_range is None:
        return
    if base_rate is None:
        raise UsageError("--base-rate-range must go with --base-rate, the most plausible rate.")
    low, high = base_rate_range
    if not 0 < low < base_rate < high < 1:
        raise UsageError(
            f"--base-rate-range must be two rates in (0, 1) with the base rate {base_rate} between "
            f"them, got {low} and {high}."
        )


def _require_valid_top_rate(base_rate: float | None, top_rate: float | None) -> None:
    if top_rate is None:
        return
    if base_rate is None:
        raise UsageError("--top-rate must go with --base-rate: two rates set level and slope.")
    if not base_rate < top_rate < 1:
        raise UsageError(
            f"--top-rate must lie between the base rate {base_rate} and 1, got {top_rate}. "
            "It is the rate among the tenth with the highest scores."
        )
