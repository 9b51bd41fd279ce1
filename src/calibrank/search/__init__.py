"""Search and rerankers: runs, judgements, thresholds and plans, by query."""

from calibrank.search.held_out import (
    chance_eces,
    held_out_constant,
    held_out_errors,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
)
from calibrank.search.judged import Judged, judged_rows
from calibrank.search.judges import (
    Agreement,
    Judge,
    agreement,
    anchor_judged,
    judged_by,
    mean_labels,
)
from calibrank.search.moved import rate_moved, scores_moved
from calibrank.search.plan import Plan, plan_judgements, plan_pairs
from calibrank.search.rerank import Cut, Reachable, choose_cut, fit_judged, reachable_cuts
from calibrank.search.runs import Run, read_qrels, read_run
from calibrank.search.write import encode_run, to_trec

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
    "chance_eces",
    "choose_cut",
    "encode_run",
    "fit_judged",
    "held_out_constant",
    "held_out_errors",
    "held_out_losses",
    "held_out_probabilities",
    "judged_by",
    "judged_rows",
    "loss_folds",
    "mean_labels",
    "plan_judgements",
    "plan_pairs",
    "rate_moved",
    "reachable_cuts",
    "read_qrels",
    "read_run",
    "scores_moved",
    "to_trec",
]
