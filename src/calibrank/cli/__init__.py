"""The command line: each command in its own module. Needs an extra, which is looked for here, before any of them."""

from calibrank.errors import MissingExtra

for _package in ("typer", "rich", "pyarrow", "matplotlib"):
    try:
        __import__(_package)
    except ImportError as error:
        raise MissingExtra(_package, "cli") from error
