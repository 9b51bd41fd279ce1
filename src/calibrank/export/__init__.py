"""Maps for other engines: SQL text, an ONNX graph, a torch module, JSON with test vectors.

No engine's package loads until its exporter is called.
"""

from calibrank.export.vectors import to_json
from calibrank.maps.targets.onnx import to_onnx
from calibrank.maps.targets.search_engines import to_lucene, to_painless, to_vespa
from calibrank.maps.targets.sql import to_sql
from calibrank.maps.targets.sql_dialects import DIALECTS
from calibrank.maps.targets.torch import to_torch

__all__ = [
    "DIALECTS",
    "to_json",
    "to_lucene",
    "to_onnx",
    "to_painless",
    "to_sql",
    "to_torch",
    "to_vespa",
]
