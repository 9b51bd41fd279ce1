"""Trained models as plain arrays: they score, recommend, and travel as safetensors and JSON, without torch."""

from calibrank.scorers.distance import Distance
from calibrank.scorers.inner_product import InnerProduct
from calibrank.scorers.neumf import NeuMF
from calibrank.scorers.saved import SavedModel, load_model
from calibrank.scorers.scorer import Factors, Scorer

__all__ = ["Distance", "Factors", "InnerProduct", "NeuMF", "SavedModel", "Scorer", "load_model"]
