"""What the report says first: how many of a hundred are liked, a verdict, and what is not known."""

from typing import Any

import numpy as np

from calibrank._logit import logit
from calibrank._validation import Floats
from calibrank.maps import CalibrationMap, FitRecord, describe_base_rate, is_base_rate_known
from calibrank.report.ledger import Codes, Ledger
from calibrank.report.resampling import Clusters

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FAVOURITE = 0.3
_WINDOW = 0.25
"""Rows within this many log odds of a level tell what happens at it."""
_LEAST_ROWS = 200


def sentences(ledger: Ledger, probabilities: Floats, clusters: Clusters) -> list[dict[str, Any]]:
    """One sentence a level that enough rows are near to, nearest to the favourite level first."""
    log_odds = logit(probabilities)
    found = []
    for level in LEVELS:
        near = np.flatnonzero(np.abs(log_odds - logit(level)) <= _WINDOW)
        if len(near) >= _LEAST_ROWS:
            found.append(_sentence(ledger, probabilities, clusters, near, level))
    if not found:
        middle = float(
            np.clip(np.average(probabilities, weights=ledger.evidence.total), 1e-4, 1 - 1e-4)
        )
        found = [
            _sentence(
                ledger, probabilities, clusters, np.arange(len(ledger)), float(f"{middle:.2g}")
            )
        ]
    return sorted(found, key=lambda one: abs(logit(one["level"]) - logit(FAVOURITE)))


def _sentence(
    ledger: Ledger, probabilities: Floats, clusters: Clusters, near: Codes, level: float
) -> dict[str, Any]:
    """What happened to rows near a level, moved by how far from it they were predicted on average."""
    evidence, held = ledger.evidence, probabilities[near]
    cells, count = np.zeros(len(near), dtype=np.intp), np.array([float(len(near))])
    positive, total, shift = (
        clusters.sums(cells, mass, 1, near)
        for mass in (
            evidence.positive[near],
            evidence.total[near],
            evidence.total[near] * (held - level),
        )
    )
    rate = clusters.ratios(positive, total, count, shift)
    low, high = (float(np.clip(end[0], 0, 1)) for end in (rate.low, rate.high))
    per = next(
        (n for n in (100, 1000, 10_000) if n * level >= 2 and round(n * low) < round(n * high)),
        10_000,
    )
    ends = [round(per * end) for end in (low, high)]
    return {
        "level": level,
        "per": per,
        "low": ends[0],
        "high": ends[1],
        "words": f"Of {per:,} items shown at {level * 100:.3g} %, {ends[0]:,} to {ends[1]:,} are liked",
        "rows": len(near),
        "from": float(held.min()),
        "to": float(held.max()),
    }


def verdict(
    main: dict[str, Any], before: dict[str, Any] | None, *, weighted: bool
) -> dict[str, Any]:
    """A judgement in a few words, with the numbers it rests on.

    Labels weighted by propensity cannot vouch for the level, so with them no verdict is better than fair.
    """
    large, loss = main["metrics"]["CalibrationInTheLarge"], main["metrics"]["LogLoss"]
    curve = main["curves"]["mass"]
    inside = (curve["low"] <= curve["predicted"]) & (curve["predicted"] <= curve["high"])
    share = float(curve["mass"][inside].sum() / curve["mass"].sum())
    right_level = large[1] <= 1 <= large[2]
    if right_level and share >= 0.85 and weighted:
        tone, title = (
            "fair",
            "The probabilities agree with the weighted log, which cannot vouch for their level.",
        )
    elif right_level and share >= 0.85:
        tone, title = (
            "good",
            "The probabilities are right on this table, if its pairs were shown at random.",
        )
    elif right_level:
        tone, title = "fair", "Right on average, but not at every level."
    else:
        word = "high" if large[0] > 1 else "low"
        tone, title = (
            "bad" if abs(np.log(large[0])) > 0.1 else "fair",
            f"The probabilities are too {word} on average.",
        )
    facts = [
        f"Predicted over observed is {_with_interval(large, 3)}; 1 is right.",
        f"{share:.0%} of the rows lie where the 95 % interval of what happened holds what was predicted.",
        f"Log loss {_with_interval(loss, 4)}, ECE {_with_interval(main['metrics']['ECE'], 4)}.",
    ]
    if before is not None and before.get("metrics"):
        facts.append(
            f"Before calibration ({before['name']}), log loss was {before['metrics']['LogLoss'][0]:.4f}."
        )
    return {"tone": tone, "title": title, "facts": facts}


def door(fitted: CalibrationMap) -> dict[str, Any]:
    """Where the base rate came from."""
    names = {
        "none": "No door",
        "random labels": "Door: randomly shown labels",
        "base rate": "Door: a known base rate",
    }
    name = names.get(fitted.record.base_rate_source, fitted.record.base_rate_source)
    if fitted.record.base_rate_source == "assumed" and fitted.record.evidence == "naive":
        name = "No door: labels as they are"
    words, left = describe_base_rate(fitted.record), fitted.record.sensitivity
    if left is not None:
        words += (
            f" Base rates this log is compatible with: {left.low_rate:.2%} to {left.high_rate:.2%}."
        )
    return {"name": name, "words": words, "known": is_base_rate_known(fitted.record)}


def unknowns(ledger: Ledger, fitted: CalibrationMap, *, given: bool) -> list[str]:
    """What this report cannot tell, each in a sentence."""
    found = []
    if ledger.evidence.kind == "naive":
        found.append(
            "Labels were taken at their word in judging. If the pairs were not shown at random, the share liked among "
            "all pairs is not known, and neither is how well the probabilities fit them."
        )
    elif ledger.evidence.kind == "impressions":
        found.append(
            "Observed shares are those of impressions weighed by the policy that chose them: right for all pairs that "
            "it could have shown, and unknown for pairs that it never would."
        )
    else:
        source = "guessed from the popularity of items" if ledger.guessed else "given"
        found.append(
            f"Observed shares are weighted by inverse propensities, {source}. The base rate is not identified by a "
            "biased log: if propensities are wrong by a factor, every observed share here is wrong by that factor."
        )
    if given and _looks_fitted_here(fitted.record, ledger):
        found.append(
            "The map was fitted on as many rows of the same mass, probably these: judged on them it looks a little "
            "better than it is. The methods table is cross-validated."
        )
    if ledger.users is None or len(ledger.users.names) < 2:
        found.append(
            "No users to tell apart: intervals take rows as independent, which makes them too narrow. "
            "Name a user column (--user)."
        )
    if ledger.sampled:
        found.append(
            f"The table has {ledger.rows_in_table:,} rows. This report is about {len(ledger):,} of them: all rows of a "
            "random share of its users."
        )
    return found


def _with_interval(values: list[float], digits: int) -> str:
    value, low, high = values
    if np.isnan(low):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _looks_fitted_here(record: FitRecord, ledger: Ledger) -> bool:
    """Whether a map's data were as many rows of the same mass, positive mass too where the evidence is of one kind."""
    evidence = ledger.evidence
    if (record.rows, record.total) != (ledger.rows_in_table, float(evidence.total.sum())):
        return False
    return record.evidence == evidence.kind and bool(
        np.isclose(record.positive, evidence.positive.sum())
    )
