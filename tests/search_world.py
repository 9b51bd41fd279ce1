"""A search world whose truth is known: queries with levels of their own, and pooled judgements."""

from pathlib import Path
from typing import NamedTuple

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


class Pool(NamedTuple):
    """Judged documents: scores, true probabilities, labels, and the query of each."""

    scores: np.ndarray
    truth: np.ndarray
    labels: np.ndarray
    queries: np.ndarray


SHAPES = ("bm25", "logit", "saturated", "cosine")
"""Scores as rankers give them; those of BM25 have a level per query that says nothing."""


def judged_pool(shape: str, n_queries: int, world: int, draw: int) -> Pool:
    """A draw of queries from a world, whose settings depend on its number alone.

    Level, slope, number of judged documents and share of relevant ones vary by query; in some
    worlds large queries are easier, in some only the top of each list is judged.
    """
    settings = np.random.default_rng(world)
    mean, spread = settings.uniform(-1.5, 0.3), settings.uniform(0.3, 1.6)
    slope, slope_spread = np.exp(settings.normal(0, 0.6)), settings.uniform(0, 0.6)
    size, size_spread = settings.uniform(20, 100), settings.uniform(0.1, 0.9)
    correlation, top_only = settings.uniform(-0.6, 0.6), settings.random() < 0.5
    rng = np.random.default_rng((world, draw))
    ease = rng.normal(size=n_queries)
    large = correlation * ease + np.sqrt(1 - correlation**2) * rng.normal(size=n_queries)
    sizes = np.clip(size * np.exp(size_spread * large), 5, 600).astype(int)
    query = np.repeat(np.arange(n_queries), sizes)
    fit = rng.normal(size=len(query))
    fit = 1.2 * np.abs(fit) - 0.9 if top_only else fit
    slopes = slope * np.exp(slope_spread * rng.normal(size=n_queries))
    truth = expit((mean + spread * ease)[query] + slopes[query] * fit)
    shift = rng.normal(size=n_queries)[query]
    scores = {
        "bm25": np.maximum(0.1, 9 + 3 * shift + 2.5 * np.expm1(0.45 * fit)),
        "logit": 3.5 * fit + shift - 2,
        "saturated": expit(1.5 + 5 * fit + 2 * shift),
        "cosine": np.round(np.clip(0.68 + 0.008 * fit + 0.004 * shift, 0.65, 0.71), 4),
    }
    labels = (rng.random(len(query)) < truth).astype(float)
    return Pool(scores[shape], truth, labels, query)


def write_trec(
    folder: Path, rows: list[tuple[str, str, float, int]], judged: int | None = None
) -> tuple[Path, Path]:
    """A TREC run and qrels; of each query the first `judged` documents are judged."""
    run, qrels = folder / "run.trec", folder / "qrels.txt"
    run.write_text("".join(f"{q} Q0 {d} 1 {s!r} test\n" for q, d, s, _ in rows))
    kept = [row for row in rows if judged is None or int(row[1].split("-")[1]) < judged]
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, d, _, g in kept))
    return run, qrels
