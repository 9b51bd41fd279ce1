"""Other people's models: one line to a score table, one line back to recommendations with probabilities.

No framework is imported before a model of it is handed in, and most are not imported at all.
"""

from calibrank.adapters.cornac import Cornac
from calibrank.adapters.cross_encoder import CrossEncoder
from calibrank.adapters.implicit import Implicit
from calibrank.adapters.lenskit import LensKit
from calibrank.adapters.lists import Recommendations, from_lists, from_nested
from calibrank.adapters.outputs import Margin, Outputs, Probability
from calibrank.adapters.pair_model import PairModel
from calibrank.adapters.ranker import Ranker
from calibrank.adapters.recbole import RecBole
from calibrank.adapters.spark import SparkALS, flatten

__all__ = [
    "Cornac",
    "CrossEncoder",
    "Implicit",
    "LensKit",
    "Margin",
    "Outputs",
    "PairModel",
    "Probability",
    "Ranker",
    "RecBole",
    "Recommendations",
    "SparkALS",
    "flatten",
    "from_lists",
    "from_nested",
]
