"""Trained models as numpy arrays: score pairs, save and load, all without torch."""

from calibrank.scorers.saved import SavedModel
from calibrank.scorers.scorer import Distance, Factors, InnerProduct, NeuMF

__all__ = ["Distance", "Factors", "InnerProduct", "NeuMF", "SavedModel"]
