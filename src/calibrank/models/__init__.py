"""The paper's five base models: BPR, NCF, CML, UBPR and LightGCN, trained on a CPU or a GPU.

Settings need nothing else installed; training needs `pip install 'calibrank[torch]'`.
"""

from calibrank.models.rankers import BPR, CML, NCF, UBPR, LightGCN, Model
from calibrank.models.training import Trained, Training, TrainingStatus, train

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
]
