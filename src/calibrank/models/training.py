"""How to train a model, and what training returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

from calibrank._internal.arguments import real, whole
from calibrank._internal.threads import thread_count
from calibrank._internal.validation import row_numbers
from calibrank.errors import DataError, MissingExtraError
from calibrank.models.rankers import Model
from calibrank.scorers import Factors
from calibrank.tables import Interactions

# Settings that must be 1 or more.
_COUNTS = ("epochs", "batch", "patience", "patience_steps", "check_steps", "k", "threads")


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of the trainer; the defaults are the paper's.

    Parameters
    ----------
    epochs : the most epochs to train for.
    batch : positives per step.
    learning_rate, weight_decay : of Adam.
    patience : with validation, stop after this many epochs without a better NDCG@k.
    patience_steps : the fewest steps that patience lasts. On a small log an epoch has few steps,
        and Adam moves no parameter by more than about `learning_rate` per step.
    check_steps : evaluate NDCG after this many steps, or after every epoch if that is longer.
    k : the length of the lists that NDCG evaluates.
    device : "cpu" or "cuda".
    threads : CPU threads, by default one per core and at most 8. A model is the same to the last
        digit whatever their number.
    checkpoint_every : seconds between checkpoints.
    """

    epochs: int = 200
    batch: int = 512
    learning_rate: float = 0.001
    weight_decay: float = 0.001
    patience: int = 20
    patience_steps: int = 1000
    check_steps: int = 40
    k: int = 5
    device: str = "cpu"
    threads: int = field(default_factory=thread_count)
    checkpoint_every: float = 60

    def __post_init__(self) -> None:
        for name in _COUNTS:
            whole(name, getattr(self, name), 1)
        real("learning_rate", self.learning_rate, "(0, inf)")
        real("weight_decay", self.weight_decay, "[0, inf)")
        if self.device not in ("cpu", "cuda"):
            raise DataError("device", "be cpu or cuda", f"{self.device!r}")


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """How far training has come: epochs done, and the last NDCG if there is validation."""

    epoch: int
    epochs: int
    ndcg: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A trained model: the scorer of the best epoch.

    `history` holds (epoch, validation NDCG) pairs; it is empty without validation.
    """

    scorer: Factors
    seed: int
    best_epoch: int
    history: tuple[tuple[int, float], ...]


Progress: TypeAlias = Callable[[TrainingStatus], None]
"""A function that is called after every epoch."""


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
    require_torch()
    from calibrank.models import _run  # noqa: PLC0415  (needs torch)

    # Epochs are drawn again from a number when a run continues, so a generator gives one number.
    number = int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else seed
    kept = _checked_positives(positives, "positives")
    held_out = None if validation is None else _checked_positives(validation, "validation")
    file = None if checkpoint is None else Path(checkpoint)
    # Batches of hundreds of positives are too small for several threads of torch.
    with _run.torch_threads(1):
        return _run.TrainingRun(model, kept, held_out, training, number).finish(file, progress)


def require_torch() -> None:
    """Raise `MissingExtraError` unless torch is installed; loading it is left to who uses it."""
    try:
        found = find_spec("torch")
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    if found is None:
        raise MissingExtraError("torch", "torch")


def _checked_positives(log: Interactions, name: str) -> Interactions:
    positives = log.positives()
    if not len(positives):
        raise DataError(name, "hold at least one positive", "none")
    users = row_numbers("users", positives.users, positives.n_users)
    items = row_numbers("items", positives.items, positives.n_items)
    return Interactions(users, items, None, positives.n_users, positives.n_items)
