"""Trained models as numpy arrays: score pairs, recommend, save and load, all without torch."""

from calibrank.scorers.saved import SavedModel
from calibrank.scorers.scorer import Distance, Factors, InnerProduct, NeuMF, Scorer

__all__ = ["Distance", "Factors", "InnerProduct", "NeuMF", "SavedModel", "Scorer"]
