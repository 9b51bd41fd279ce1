"""`calibrank` and `python -m calibrank`: say plainly what is missing before anything is loaded."""

import gc
import sys

from calibrank.errors import MissingExtraError


def main() -> None:
    """Run the command line, or say how to install it."""
    gc.set_threshold(
        100_000
    )  # what is loaded is here to stay: looking through it for garbage would take 0.1 s
    try:
        from calibrank.cli.app import main as run  # noqa: PLC0415  (the extra may be missing)
    except MissingExtraError as error:
        print(f"calibrank: {error}", file=sys.stderr)  # noqa: T201  (there is no rich to print with)
        sys.exit(5)
    try:
        run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
