"""Tables on disk: Parquet and CSV, single files, folders and globs, read and written a batch at a time."""
