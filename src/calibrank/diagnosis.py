"""What a table says about itself, in words: which door it stands at, what is wrong with it, what to collect."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from calibrank._validation import Floats, add_up
from calibrank.base_rate import ExpectedError, plan_labels, with_sensitivity
from calibrank.calibrators import Gaussian
from calibrank.errors import CalibrankError, FlatMapWarning
from calibrank.evidence import impressions, naive
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary
from calibrank.tabular.aggregate import Aggregate, Columns, propensity_model_for
from calibrank.tabular.profile import Profile

_BANDS = 10
_FEW = 100  # positives of equal weight: below this, weights have eaten the sample


class Tone(StrEnum):
    """How a finding is meant."""

    fine = "fine"
    note = "note"
    warning = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a table says about itself."""

    about: str
    tone: Tone
    words: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, the fit they rest on (if there is one) and what random labels would buy."""

    findings: tuple[Finding, ...]
    bands: tuple[tuple[float, float], ...]
    """Mean score and mean evidence of preference (Y/w) in ten bands of equal mass."""
    fitted: CalibrationMap | None
    planned: tuple[ExpectedError, ...]


def diagnose(
    found: Profile,
    summed: Aggregate,
    columns: Columns,
    skipped: Mapping[str, int],
    *,
    named_user: bool,
) -> Diagnosis:
    """Explain a profiled table and its aggregate; `skipped` counts rows left out, by the column that is bad."""
    fitted, problem = _fit(summed, columns)
    findings = [
        *_about_rows(found),
        *_about_skipped(skipped),
        *_about_scores(found),
        *_about_lists(found, named_user=named_user),
        *_about_weights(summed, columns),
        problem or Finding("fit", Tone.fine, "A finite best fit exists: the risk is bounded."),
        *_about_door(fitted, columns),
    ]
    planned: tuple[ExpectedError, ...] = ()
    if fitted is not None and fitted.record.sensitivity is not None:
        try:
            planned = tuple(plan_labels(fitted, _population(summed.summary)))
            findings.append(_about_plan(planned))
        except CalibrankError as error:
            findings.append(
                Finding(
                    "collect", Tone.note, f"What random labels would buy cannot be planned: {error}"
                )
            )
    return Diagnosis(tuple(findings), tuple(_bands(summed.summary)), fitted, planned)


def _fit(summed: Aggregate, columns: Columns) -> tuple[CalibrationMap | None, Finding | None]:
    method = Gaussian()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FlatMapWarning)  # the findings about scores say it
            fitted = method.fit_summary(summed.summary)
    except CalibrankError as error:
        return None, Finding("fit", Tone.warning, str(error))
    if summed.positives is None:
        return fitted, None
    setting, known = propensity_model_for(columns)
    return with_sensitivity(
        fitted,
        method,
        summed.summary,
        summed.positives,
        setting,
        columns.evidence,
        scale_known=known,
    ), None


def _about_rows(found: Profile) -> Iterator[Finding]:
    liked = float(found.summary.positive.sum()) if found.summary is not None else 0
    yield Finding(
        "rows", Tone.note, f"{found.rows:,} rows, {liked:,.0f} positive ({liked / found.rows:.2%})."
    )
    for what, count in found.bad_scores.items():
        cause = {
            "missing": "never scored",
            "infinite": "masked, such as history",
            "beyond 1e30": "padding",
        }[what]
        yield Finding(
            "scores",
            Tone.warning,
            f"{count:,} scores are {what}: {cause}? Not scores. Use fit --on-bad-rows skip.",
        )
    if found.bad_labels:
        yield Finding(
            "labels",
            Tone.warning,
            f"{found.bad_labels:,} labels are neither 0 nor 1. Make likes of ratings.",
        )


def _about_skipped(skipped: Mapping[str, int]) -> Iterator[Finding]:
    for what, count in skipped.items():
        if what not in {"score", "label"}:  # said already, in more words
            yield Finding(
                what,
                Tone.warning,
                f"{count:,} rows have a bad {what} and were left out of what follows.",
            )


def _about_scores(found: Profile) -> Iterator[Finding]:
    summary = found.summary
    if summary is None:
        return
    values, counts = np.unique(found.sample, return_counts=True)
    most = int(np.argmax(counts))
    share = counts[most] / len(found.sample)
    if len(values) > 20 and share > 0.05:
        yield Finding(
            "scores",
            Tone.warning,
            f"{share:.0%} of scores are exactly {values[most]:.6g}: {_suspect(values, most)} Drop such rows if so.",
        )
    if summary.low >= 0 and summary.high <= 1:
        yield Finding(
            "scores",
            Tone.note,
            "All scores lie in [0, 1]. They may be probabilities already, or not: nothing is guessed from it. "
            "If they are a sigmoid's outputs, try --method beta, and calibrank evaluate to judge them as they are.",
        )
    if not 0 < summary.positive.sum() < summary.total.sum():
        return  # without both classes nothing is ranked; the fit says so
    ranked, error = _auc(summary)
    if ranked < 0.5 - 2 * error:
        yield Finding(
            "scores",
            Tone.warning,
            f"Lower scores are liked more (AUC {ranked:.3f}): distances? Maps only rise, so negate the scores first.",
        )
    elif ranked < 0.5 + 2 * error:
        yield Finding(
            "scores",
            Tone.warning,
            f"Scores hardly tell liked from not (AUC {ranked:.3f}): maps will be flat.",
        )
    else:
        yield Finding("scores", Tone.fine, f"Higher scores are liked more (AUC {ranked:.3f}).")


def _suspect(values: Floats, most: int) -> str:
    """What a value that many rows share may be."""
    middle = np.quantile(values, [0.25, 0.75])
    width = max(float(middle[1] - middle[0]), 1e-300)
    if values[most] < middle[0] - 10 * width or values[most] > middle[1] + 10 * width:
        return "far from all others, it looks like a sentinel or padding."
    if most in (0, len(values) - 1):
        return "at the end of their range, they look clipped, and what lay beyond is lost."
    return "ties or padding? Equal scores get equal probabilities."


def _about_lists(found: Profile, *, named_user: bool) -> Iterator[Finding]:
    if not named_user:
        yield Finding(
            "users",
            Tone.note,
            "No user column: whether the table holds whole lists or only their top is not checked.",
        )
        return
    sizes = found.per_user.counts
    longest = int(sizes.max())
    full = float((sizes == longest).mean())
    falling = found.falling / max(found.neighbours, 1)
    items = len(found.per_item.counts)
    whole = longest == items
    if len(sizes) >= 20 and longest >= 3 and full > 0.8 and not whole:
        sort = "and sorted by score" if falling > 0.95 else "though not sorted by score"
        yield Finding(
            "users",
            Tone.warning if falling > 0.95 else Tone.note,
            f"{full:.0%} of users have exactly {longest} rows, {sort}: the top {longest} of longer lists? Then the "
            "table says nothing of pairs below, and its rates hold for the top only. Export a random sample of pairs.",
        )
    else:
        yield Finding(
            "users",
            Tone.fine,
            f"{len(sizes):,} users, up to {longest:,} rows each: no sign of lists cut short.",
        )
    name, most = found.per_item.most_frequent()
    if items > 20 and most > 0.5 * found.rows:
        share = most / found.rows
        yield Finding(
            "items",
            Tone.warning,
            f"Item {name!r} holds {share:.0%} of all rows: padding? Drop it if so.",
        )


def _about_weights(summed: Aggregate, columns: Columns) -> Iterator[Finding]:
    if summed.positives is None:
        return
    setting, _ = propensity_model_for(columns)
    weights = summed.positives.weights / setting.propensity(summed.positives.exposure)
    worth = float(weights.sum() ** 2 / (weights**2).sum())
    count, largest = len(weights), float(weights.max())
    tone = Tone.fine if worth > max(_FEW, count / 4) else Tone.warning
    yield Finding(
        "weights",
        tone,
        f"{count:,} positives weigh up to {largest:.3g} each and are worth {worth:,.0f} of equal weight"
        + ("." if tone is Tone.fine else ": few of them decide. Raise the clip, or collect more."),
    )
    highest = max(rate for _, rate in _bands(summed.summary))
    if highest > 1:
        yield Finding(
            "weights",
            Tone.warning,
            f"In some band of scores the mean of Y/w is {highest:.2f}, more than all: propensities are too small "
            "there, or too few rows were drawn.",
        )


def _about_door(fitted: CalibrationMap | None, columns: Columns) -> Iterator[Finding]:
    if columns.evidence is naive:
        yield Finding(
            "door",
            Tone.note,
            "No propensities: labels are taken at their word. If these pairs were shown at random, the base rate is "
            "identified (door 1). If they come from a recommender's log, name --item or --propensity.",
        )
        return
    if columns.evidence is impressions:
        yield Finding(
            "door",
            Tone.fine,
            "Impressions with the policy's propensities (door 1): the base rate is identified.",
        )
        return
    doubt = None if fitted is None else fitted.record.sensitivity
    rates = (
        ""
        if doubt is None
        else f" Anything from {doubt.low_rate:.2%} to {doubt.high_rate:.2%} fits this log."
    )
    yield Finding(
        "door",
        Tone.warning,
        f"Neither random labels nor a known rate (door 3): the base rate is not identified.{rates} Labels of a "
        "few hundred randomly shown pairs (fit --anchor, door 1) or a known rate (fit --base-rate, door 2) tell it.",
    )


def _about_plan(planned: tuple[ExpectedError, ...]) -> Finding:
    before = planned[0].error
    after = next(step for step in planned if step.labels == 300)
    cut = f"would cut the expected ECE from about {before:.3f} to about {after.error:.3f}."
    if after.error >= before:
        cut = f"are too few to better the expected ECE of about {before:.3f}."
    words = f"{after.labels} random impressions {cut}"
    return Finding("collect", Tone.note, words)


def _bands(summary: Summary) -> list[tuple[float, float]]:
    share = (np.cumsum(summary.total) - summary.total / 2) / summary.total.sum()
    band = np.minimum((share * _BANDS).astype(np.intp), _BANDS - 1)
    total, positive, moment = (
        add_up(band, mass, _BANDS)
        for mass in (summary.total, summary.positive, summary.total * summary.scores)
    )
    heard = total > 0
    return list(
        zip(
            (moment[heard] / total[heard]).tolist(),
            (positive[heard] / total[heard]).tolist(),
            strict=True,
        )
    )


def _auc(summary: Summary) -> tuple[float, float]:
    """The chance that a liked pair is scored above another, and its standard error (Hanley and McNeil's bound)."""
    liked, other = summary.positive, summary.total - summary.positive
    below = np.cumsum(other) - other / 2
    pairs = max(float(liked.sum() * other.sum()), 1e-300)
    area = float(liked @ below) / pairs
    return area, 0.5 / max(min(liked.sum(), other.sum()), 1.0) ** 0.5


def _population(summary: Summary, size: int = 2_000) -> Floats:
    """Scores as often as they occur."""
    share = np.cumsum(summary.total) / summary.total.sum()
    return summary.scores[
        np.searchsorted(share, (np.arange(size) + 0.5) / size).clip(max=len(share) - 1)
    ]
