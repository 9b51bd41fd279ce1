"""Adapters for models of other libraries: score tables to calibrate on, and recommendations.

No library is imported before one of its models is passed in, and most are never imported.
"""

from calibrank.adapters.lists import Recommendations, from_lists
from calibrank.adapters.outputs import Distance, Margin, Outputs, Probability
from calibrank.adapters.pair_model import PairModel
from calibrank.adapters.recommenders import Implicit, LensKit, RecBole
from calibrank.adapters.retrieval import (
    Cutoff,
    haystack_component,
    langchain_compressor,
    llamaindex_postprocessor,
)
from calibrank.adapters.row_models import CrossEncoder, Ranker

__all__ = [
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
    "from_lists",
    "haystack_component",
    "langchain_compressor",
    "llamaindex_postprocessor",
]
