"""How to train a model, and what training returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from calibrank._internal.threads import thread_count
from calibrank.errors import DataError
from calibrank.scorers import Factors

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
            value = getattr(self, name)
            if value < 1:
                raise DataError(name, "be 1 or more", value)
        if not self.learning_rate > 0:
            raise DataError("learning_rate", "be above 0", self.learning_rate)
        if self.weight_decay < 0:
            raise DataError("weight_decay", "be at least 0", self.weight_decay)
        if self.device not in ("cpu", "cuda"):
            raise DataError("device", "be cpu or cuda", f"{self.device!r}")


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """How far training has come: epochs done, and each seed's last NDCG if there is validation."""

    epoch: int
    epochs: int
    ndcg: tuple[float, ...]


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
