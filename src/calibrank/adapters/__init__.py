"""Adapters for models of other libraries: score tables to calibrate on, and recommendations.

No library is imported before one of its models is passed in, and most are never imported.
"""

from calibrank.adapters.lists import Recommendations, from_lists, from_nested
from calibrank.adapters.outputs import Distance, Margin, Outputs, Probability
from calibrank.adapters.pair_model import PairModel
from calibrank.adapters.recommenders import Cornac, Implicit, LensKit, RecBole, SparkALS, flatten
from calibrank.adapters.retrieval import (
    Cutoff,
    haystack_component,
    langchain_compressor,
    llamaindex_postprocessor,
)
from calibrank.adapters.row_models import CrossEncoder, Ranker

__all__ = [
    "Cornac",
    "CrossEncoder",
    "Cutoff",
    "Distance",
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
    "haystack_component",
    "langchain_compressor",
    "llamaindex_postprocessor",
]
