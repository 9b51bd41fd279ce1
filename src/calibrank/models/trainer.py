"""Train a model for one seed or for several seeds at once."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from calibrank._internal.validation import row_numbers
from calibrank.errors import DataError, MissingExtraError
from calibrank.models.model import Model
from calibrank.models.training import Progress, Trained, Training
from calibrank.tables import Interactions


def train(
    model: Model,
    positives: Interactions,
    validation: Interactions | None = None,
    training: Training = Training(),  # noqa: B008  (frozen)
    seed: int | np.random.Generator = 0,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a model on the positives of a log.

    With `validation`, training stops early and the epoch with the best NDCG is returned. With a
    `checkpoint` file, an interrupted run continues where it stopped and gives the same result.
    """
    return train_seeds(model, positives, [seed], validation, training, checkpoint, progress)[0]


def train_seeds(
    model: Model,
    positives: Interactions,
    seeds: Sequence[int | np.random.Generator],
    validation: Interactions | None = None,
    training: Training = Training(),  # noqa: B008  (frozen)
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Trained]:
    """Train one model per seed, all in the same steps.

    On a GPU this is much faster than one seed after another.
    """
    require_torch()
    from calibrank.models import _run  # noqa: PLC0415  (needs torch)

    _run.require_device(training.device)
    if not seeds:
        raise DataError("seeds", "hold at least one seed", "none")
    numbers = tuple(_seed_number(seed) for seed in seeds)
    kept = _checked_positives(positives, "positives")
    held_out = None
    if validation is not None:
        held_out = _checked_positives(validation, "validation")
    file = None if checkpoint is None else Path(checkpoint)
    # Batches of hundreds of positives are too small for several threads of torch.
    with _run.torch_threads(1):
        run = _run.TrainingRun(model, kept, held_out, training, numbers)
        return run.finish(file, progress)


def require_torch() -> None:
    """Raise `MissingExtraError` unless torch is installed; loading it is left to who uses it."""
    try:
        found = find_spec("torch")
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    if found is None:
        raise MissingExtraError("torch", "torch")


def _seed_number(seed: int | np.random.Generator) -> int:
    # Epochs are drawn again from a number when a run continues, so a generator gives one number.
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return seed


def _checked_positives(log: Interactions, name: str) -> Interactions:
    positives = log.positives()
    if not len(positives):
        raise DataError(name, "hold at least one positive", "none")
    users = row_numbers("users", positives.users, positives.n_users)
    items = row_numbers("items", positives.items, positives.n_items)
    return Interactions(users, items, None, positives.n_users, positives.n_items)
