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
from calibrank.search.plan import ExpectedQueryError, plan_queries
from calibrank.search.rerank import Cut, choose_cut, fit_judged
from calibrank.search.runs import Run, read_qrels, read_run
from calibrank.search.write import encode_run, to_trec

__all__ = [
    "Agreement",
    "Cut",
    "ExpectedQueryError",
    "Judge",
    "Judged",
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
    "plan_queries",
    "read_qrels",
    "read_run",
    "to_trec",
]
