"""Rewrite the frozen numbers on purpose: `python -m tests.golden.rewrite`."""

from tests.golden.rows import ROWS, compute_rows, write_rows

if __name__ == "__main__":
    rows = compute_rows()
    write_rows(rows)
    print(  # noqa: T201  (a command)
        f"{len(rows)} rows written to {ROWS.name}. Review the diff before committing it."
    )
