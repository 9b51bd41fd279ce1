"""The Spark engine: summaries, maps and metrics as native columns, without Python on executors.

A calibrator is fitted on the driver, on a summary of some ten thousand bins, by the same code as
on one machine.
"""

from calibrank.errors import MissingExtraError

try:
    import pyspark as _pyspark  # noqa: F401  (imported here so that the error names the extra)
except ImportError as error:
    raise MissingExtraError("pyspark", "spark") from error

from calibrank.spark.aggregate import fit, summarize
from calibrank.spark.apply import transform
from calibrank.spark.evaluate import evaluate
from calibrank.spark.propensity import exposure, popularity

__all__ = ["evaluate", "exposure", "fit", "popularity", "summarize", "transform"]
