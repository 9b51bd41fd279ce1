"""Search and rerankers: runs, judgements, thresholds and plans, by query."""

from calibrank.search.held_out import (
    Cut,
    Reachable,
    choose_cut,
    fit_judged,
    held_out_constant,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
    reachable_cuts,
)
from calibrank.search.judged import Judged, judged_rows
from calibrank.search.judges import (
    Agreement,
    Judge,
    Plan,
    agreement,
    anchor_judged,
    judged_by,
    plan_judgements,
    plan_pairs,
    rate_moved,
    scores_moved,
)
from calibrank.search.runs import Run, encode_run, read_qrels, read_run

__all__ = [
    "Agreement",
    "Cut",
    "Judge",
    "Judged",
    "Plan",
    "Reachable",
    "Run",
    "agreement",
    "anchor_judged",
    "choose_cut",
    "encode_run",
    "fit_judged",
    "held_out_constant",
    "held_out_losses",
    "held_out_probabilities",
    "judged_by",
    "judged_rows",
    "loss_folds",
    "plan_judgements",
    "plan_pairs",
    "rate_moved",
    "reachable_cuts",
    "read_qrels",
    "read_run",
    "scores_moved",
]
