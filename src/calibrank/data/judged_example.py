"""A small synthetic search collection with a judge, as files to try the commands on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrank._internal.arguments import path_of, seeded
from calibrank._internal.logit import expit

# The stream of the seed that this module draws from.
_STREAM = 78
_QUERIES = 60
_DOCUMENTS = 25


def write_judged_example(folder: str | Path, seed: int | np.random.Generator = 0) -> None:
    """Write a run, a judge's grades, and what people would say: made by us, of no real collection.

    `run.trec` has 60 queries of 25 documents, `judge.qrels` the grades 0 to 3 of a judge that is
    too generous, `people.qrels` those of people for all pairs. Relevant is 2 or more. Use a few of
    the latter to anchor on, and the rest to see whether it worked.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_judged_example(folder)
    ...     print(sorted(file.name for file in Path(folder).iterdir()))
    ['judge.qrels', 'people.qrels', 'run.trec']
    """
    target = path_of("folder", folder)
    target.mkdir(parents=True, exist_ok=True)
    rng = seeded(seed, _STREAM)
    run: list[str] = []
    judge: list[str] = []
    people: list[str] = []
    for query in range(_QUERIES):
        # Queries differ in how many relevant documents they have, and in the level of their scores.
        level, offset = rng.normal(0, 0.8), rng.normal(0, 0.3)
        quality = np.sort(rng.normal(size=_DOCUMENTS))[::-1]
        likely = 1.2 * quality - 0.9 + level + rng.normal(0, 0.5, _DOCUMENTS)
        truth = rng.random(_DOCUMENTS) < expit(likely)
        # The judge sees nearly the same, calls more relevant, and errs in its own ways.
        called = rng.random(_DOCUMENTS) < expit(1.5 * likely + 1.2 * truth + 0.8)
        scores = 10 + 2 * quality + offset + rng.normal(0, 0.5, _DOCUMENTS)
        places = np.argsort(-scores).tolist()
        for rank, place in enumerate(places, start=1):
            pair = f"q{query + 1}", f"d{query + 1}-{place + 1}"
            run.append(f"{pair[0]} Q0 {pair[1]} {rank} {scores[place]:.4f} example\n")
            for lines, is_relevant in ((judge, called[place]), (people, truth[place])):
                grade = int(rng.integers(0, 2)) + 2 * int(is_relevant)
                lines.append(f"{pair[0]} 0 {pair[1]} {grade}\n")
    for name, lines in (("run.trec", run), ("judge.qrels", judge), ("people.qrels", people)):
        (target / name).write_text("".join(lines), encoding="utf-8")
