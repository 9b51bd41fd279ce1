"""The command line: each command in its own module. Needs an extra, which is looked for here, before any of them."""

from importlib.util import find_spec

from calibrank.errors import MissingExtraError

for _package in ("typer", "rich", "pyarrow", "matplotlib"):
    if find_spec(_package) is None:
        raise MissingExtraError(_package, "cli")
