"""The paper's five base models: BPR, NCF, CML, UBPR and LightGCN, trained on a CPU or a GPU.

Settings need nothing else installed; training needs `pip install 'calibrank[torch]'`.
"""

from calibrank.models.bpr import BPR, UBPR
from calibrank.models.cml import CML
from calibrank.models.lightgcn import LightGCN
from calibrank.models.model import Model
from calibrank.models.ncf import NCF
from calibrank.models.trainer import train, train_seeds
from calibrank.models.training import Trained, Training, TrainingStatus

__all__ = [
    "BPR",
    "CML",
    "NCF",
    "UBPR",
    "LightGCN",
    "Model",
    "Trained",
    "Training",
    "TrainingStatus",
    "train",
    "train_seeds",
]
