"""Trained models as numpy arrays: score pairs, recommend, save and load, all without torch."""

from calibrank.scorers.distance import Distance
from calibrank.scorers.inner_product import InnerProduct
from calibrank.scorers.neumf import NeuMF
from calibrank.scorers.saved import SavedModel
from calibrank.scorers.scorer import Factors, Scorer

__all__ = ["Distance", "Factors", "InnerProduct", "NeuMF", "SavedModel", "Scorer"]
