"""The paper's five base models, trained fast on a CPU or a GPU (`pip install 'calibrank[torch]'`)."""

from calibrank.models.bpr import BPR, UBPR
from calibrank.models.cml import CML
from calibrank.models.lightgcn import LightGCN
from calibrank.models.model import Model
from calibrank.models.ncf import NCF
from calibrank.models.training import Trained, Training, train, train_seeds

EVERY: tuple[Model, ...] = (BPR(), NCF(), CML(), UBPR(), LightGCN())
"""Every model with the paper's settings."""

__all__ = [
    "BPR", "CML", "EVERY", "NCF", "UBPR", "LightGCN", "Model", "Trained", "Training", "train", "train_seeds",
]  # fmt: skip
