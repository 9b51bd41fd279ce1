"""Datasets, train/validation splits, sampled negatives and synthetic data.

Three functions make synthetic data. `make_world` draws scored pairs whose true probabilities are
known, to test calibrators. `simulate` draws a complete dataset with a log and a test set, to train
and evaluate models. `write_judged_example` writes a search run with the grades of a judge.
"""

from calibrank.data.download import fetch
from calibrank.data.judged_example import write_judged_example
from calibrank.data.negatives import Positives, draw_negatives, population_negatives, with_negatives
from calibrank.data.official import load_coat, load_kuairand, load_kuairec, load_yahoo_r3
from calibrank.data.score_world import (
    GammaScores,
    GaussianScores,
    MixedScores,
    Scores,
    World,
    make_world,
)
from calibrank.data.simulated import ShownWorld, make_shown_world, simulate
from calibrank.data.splits import LeaveOneOut, RandomSplit, ReleasedSplit, Split, TimeSplit
from calibrank.data.table import Dataset, load_table

__all__ = [
    "Dataset",
    "GammaScores",
    "GaussianScores",
    "LeaveOneOut",
    "MixedScores",
    "Positives",
    "RandomSplit",
    "ReleasedSplit",
    "Scores",
    "ShownWorld",
    "Split",
    "TimeSplit",
    "World",
    "draw_negatives",
    "fetch",
    "load_coat",
    "load_kuairand",
    "load_kuairec",
    "load_table",
    "load_yahoo_r3",
    "make_shown_world",
    "make_world",
    "population_negatives",
    "simulate",
    "with_negatives",
    "write_judged_example",
]
