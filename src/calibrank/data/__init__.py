"""Datasets, train/validation splits, sampled negatives and synthetic data.

Three functions make synthetic data. `make_world` draws scored pairs whose true probabilities are
known, to test calibrators. `simulate` draws a complete dataset with a log and a test set, to train
and evaluate models. `write_judged_example` writes a search run with the grades of a judge.
"""

from calibrank.data.official import load_coat, load_kuairand, load_kuairec, load_yahoo_r3
from calibrank.data.score_world import GammaScores, GaussianScores, Scores, World, make_world
from calibrank.data.simulated import simulate, write_judged_example
from calibrank.data.splits import (
    Positives,
    RandomSplit,
    ReleasedSplit,
    Split,
    TimeSplit,
    draw_negatives,
    population_negatives,
    with_negatives,
)
from calibrank.data.table import Dataset, load_table

__all__ = [
    "Dataset",
    "GammaScores",
    "GaussianScores",
    "Positives",
    "RandomSplit",
    "ReleasedSplit",
    "Scores",
    "Split",
    "TimeSplit",
    "World",
    "draw_negatives",
    "load_coat",
    "load_kuairand",
    "load_kuairec",
    "load_table",
    "load_yahoo_r3",
    "make_world",
    "population_negatives",
    "simulate",
    "with_negatives",
    "write_judged_example",
]
