"""Rewrite the frozen numbers on purpose: `python -m tests.golden.rewrite`."""

from tests.golden.numbers import NUMBERS, write_numbers
from tests.golden.rows import ROWS, compute_rows, write_rows

if __name__ == "__main__":
    rows = compute_rows()
    write_rows(rows)
    members = write_numbers()
    print(  # noqa: T201  (a command)
        f"{len(rows)} rows written to {ROWS.name}, and {members} to {NUMBERS.name}. "
        "Review the diff before committing it."
    )
