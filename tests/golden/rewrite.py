"""Rewrite the frozen numbers on purpose: `python -m tests.golden.rewrite`."""

from tests.golden.numbers import NUMBERS, write_numbers
from tests.golden.rows import ROWS, compute_rows, write_rows
from tests.golden.vectors import VECTORS, write_vectors

if __name__ == "__main__":
    rows = compute_rows()
    write_rows(rows)
    members = write_numbers()
    maps = write_vectors()
    print(  # noqa: T201  (a command)
        f"{len(rows)} rows written to {ROWS.name}, {members} to {NUMBERS.name} and {maps} maps to "
        f"{VECTORS.name}. Review the diff before committing it."
    )
