"""Search and rerankers: runs, judgements, thresholds and plans, by query."""

from calibrank.search.judged import Judged, judged_rows
from calibrank.search.plan import ExpectedQueryError, plan_queries
from calibrank.search.rerank import Cut, choose_cut, fit_judged, held_out_probabilities
from calibrank.search.runs import Run, read_qrels, read_run

__all__ = [
    "Cut",
    "ExpectedQueryError",
    "Judged",
    "Run",
    "choose_cut",
    "fit_judged",
    "held_out_probabilities",
    "judged_rows",
    "plan_queries",
    "read_qrels",
    "read_run",
]
