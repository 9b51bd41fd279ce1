"""The Spark engine: summaries, maps and metrics as native columns, without Python on executors.

A calibrator is fitted on the driver, on a summary of some ten thousand bins, by the same code as
on one machine.
"""

from calibrank.errors import MissingExtraError

try:
    import pyspark as _pyspark  # noqa: F401  (imported here so that the error names the extra)
except ImportError as error:
    raise MissingExtraError("pyspark", "spark") from error

from calibrank.spark.model import evaluate, fit, summarize, transform

__all__ = ["evaluate", "fit", "summarize", "transform"]
