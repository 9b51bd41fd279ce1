"""Maps for other engines: SQL text, an ONNX graph, a torch module, JSON with test vectors.

No heavy package loads until its exporter is called.
"""

from calibrank.export.onnx import to_onnx
from calibrank.export.sql import DIALECTS, to_sql
from calibrank.export.torch import to_torch
from calibrank.export.vectors import to_json

__all__ = ["DIALECTS", "to_json", "to_onnx", "to_sql", "to_torch"]
