"""`calibrank` and `python -m calibrank`: say plainly what is missing before anything is loaded."""

import sys

from calibrank.errors import MissingExtra


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from calibrank.cli.app import main as run  # noqa: PLC0415  (the extra may be missing)
    except MissingExtra as error:
        print(f"calibrank: {error}", file=sys.stderr)  # noqa: T201  (there is no rich to print with)
        sys.exit(5)
    run()


if __name__ == "__main__":
    main()
