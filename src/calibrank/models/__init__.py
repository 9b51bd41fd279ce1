"""The paper's five base models, trained fast on a CPU or a GPU (`pip install 'calibrank[torch]'`)."""

from calibrank.models.bpr import BPR, UBPR
from calibrank.models.cml import CML
from calibrank.models.lightgcn import LightGCN
from calibrank.models.model import Model
from calibrank.models.ncf import NCF
from calibrank.models.training import Trained, Training, train, train_seeds

__all__ = [
    "BPR", "CML", "NCF", "UBPR", "LightGCN", "Model", "Trained", "Training", "train", "train_seeds",
]  # fmt: skip
