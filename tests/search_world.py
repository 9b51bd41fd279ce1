"""A search world whose truth is known: queries with levels of their own, and pooled judgements."""

from pathlib import Path

import numpy as np
from scipy.special import expit


def make_run(
    n_queries: int = 40, size: int = 20, slope: float = 1.5, spread: float = 0.8, seed: int = 0
) -> list[tuple[str, str, float, int]]:
    """Query, document, score and grade (0 to 3) of every document."""
    rng = np.random.default_rng(seed)
    rows = []
    for query in range(n_queries):
        level = rng.normal(0, spread)
        for document in range(size):
            score = float(rng.normal())
            is_relevant = rng.random() < expit(-0.5 + slope * score + level)
            grade = int(rng.integers(2, 4)) if is_relevant else int(rng.integers(0, 2))
            rows.append((f"q{query}", f"d{query}-{document}", score, grade))
    return rows


def write_trec(
    folder: Path, rows: list[tuple[str, str, float, int]], judged: int | None = None
) -> tuple[Path, Path]:
    """A TREC run and qrels; of each query the first `judged` documents are judged."""
    run, qrels = folder / "run.trec", folder / "qrels.txt"
    run.write_text("".join(f"{q} Q0 {d} 1 {s!r} test\n" for q, d, s, _ in rows))
    kept = [row for row in rows if judged is None or int(row[1].split("-")[1]) < judged]
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, d, _, g in kept))
    return run, qrels
