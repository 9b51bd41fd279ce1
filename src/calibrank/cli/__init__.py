"""The `calibrank` command line: one module per command.

The command line is an optional extra, so its packages are checked here, before any command is
imported.
"""

from importlib.util import find_spec

from calibrank.errors import MissingExtraError

for _package in ("typer", "rich", "pyarrow", "matplotlib"):
    if find_spec(_package) is None:
        raise MissingExtraError(_package, "cli")
