"""Tables on disk: Parquet and CSV files, folders and globs, read and written batch by batch."""

from calibrank.errors import MissingExtraError

try:
    import pyarrow as pa  # noqa: F401  (imported here so that the error names the extra)
except ImportError as error:
    raise MissingExtraError("pyarrow", "cli") from error
