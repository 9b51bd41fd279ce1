"""Datasets, splits and negatives: what models learn from and calibration is judged on."""

from calibrank.data.coat import load_coat
from calibrank.data.dataset import Dataset
from calibrank.data.download import fetch
from calibrank.data.negatives import Positives, draw_negatives, population_negatives, with_negatives
from calibrank.data.splits import LeaveOneOut, RandomSplit, ReleasedSplit, Split, TimeSplit
from calibrank.data.yahoo_r3 import load_yahoo_r3

__all__ = [
    "Dataset",
    "LeaveOneOut",
    "Positives",
    "RandomSplit",
    "ReleasedSplit",
    "Split",
    "TimeSplit",
    "draw_negatives",
    "fetch",
    "load_coat",
    "load_yahoo_r3",
    "population_negatives",
    "with_negatives",
]
