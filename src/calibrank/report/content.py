"""All the numbers of a report, as plain data for the page."""

from typing import Any

from calibrank.errors import FitError
from calibrank.maps import CalibrationMap
from calibrank.report.evaluate import HISTOGRAM, LOGITS, Evaluator, every_method
from calibrank.report.explanations import BETTER, EXPLANATIONS
from calibrank.report.headline import door, sentences, unknowns, verdict
from calibrank.report.ledger import Ledger
from calibrank.report.segments import segment_tables
from calibrank.report.shapes import doubt, map_curves, parameters, score_shapes
from calibrank.report.thresholds import threshold_table
from calibrank.report.user_sample import sample_users

BEFORE = "MinMax"
"""What scores are before calibration: stretched to [0, 1]."""


def contents(ledger: Ledger, given: CalibrationMap | None, about: dict[str, Any]) -> dict[str, Any]:
    """Compute everything that the page shows."""
    judge = Evaluator.of(ledger)
    judged = list(every_method(ledger, given))
    main = judged[0]
    if main.probabilities is None or main.fitted is None:
        raise FitError(main.error)
    methods = [judge.describe(method) for method in judged]
    before = next(method for method in methods if method["name"] == BEFORE)
    probabilities = main.fitted.predict(ledger.scores)
    curves = map_curves(ledger, judged)
    users = None if ledger.users is None else ledger.users.codes
    return {
        "about": about,
        "headline": {
            "sentences": sentences(ledger, main.probabilities, judge.clusters),
            "verdict": verdict(methods[0], before, weighted=ledger.weighted),
            "door": door(main.fitted),
            "unknown": unknowns(ledger, main.fitted, given=given is not None),
            "how": _how(ledger, given),
        },
        "main": main.name,
        "before": BEFORE,
        "methods": methods,
        "ranking": {name: [*estimate] for name, estimate in judge.ranking().items()},
        "explanations": EXPLANATIONS,
        "better": BETTER,
        "histogram": {"bins": HISTOGRAM, "logits": LOGITS},
        "scores": score_shapes(ledger, main.fitted, judge.clusters),
        "maps": curves,
        "parameters": parameters(main.fitted),
        "doubt": doubt(main.fitted, curves["scores"]),
        "threshold": None
        if users is None
        else threshold_table(probabilities, ledger.evidence, users),
        "explorer": sample_users(ledger, probabilities),
        "segments": segment_tables(ledger, main.probabilities, judge.clusters),
    }


def _how(ledger: Ledger, given: CalibrationMap | None) -> str:
    folds = int(ledger.folds.max()) + 1
    unit = "users" if ledger.users is not None else "rows"
    others = f"The other methods are fitted here, each judged on {unit} it was not fitted on ({folds} folds)."
    if given is not None:
        return f"The map was given and is judged on this table as it is. {others}"
    return (
        "No map was given: a Gaussian map was fitted on this table. The verdict and all curves are cross-validated, "
        f"each of {folds} shares of {unit} judged by a fit on the others. The lists and the threshold "
        "use the fit on all rows."
    )
