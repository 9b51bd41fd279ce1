"""Training: from positives to scorers, for one seed or several at once, stopping early and surviving a kill."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrank._validation import row_numbers
from calibrank.errors import DataError
from calibrank.models.checkpoints import Checkpoint, fingerprint
from calibrank.models.engines.base import Arrays, Engine, OnGpu, plain_words
from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch, Sampler
from calibrank.models.validation import Validation
from calibrank.scorers import Factors
from calibrank.tables import Interactions

Progress = Callable[["Moment"], None]


@dataclass(frozen=True, slots=True)
class Training:
    """How to train: the paper's settings, and stopping after `patience` epochs without a better validation NDCG@k.

    On a small log an epoch has few steps, and Adam moves no number faster than `learning_rate` a step: patience also
    lasts for `patience_steps` at the least, and NDCG is looked at after every `check_steps`, or every epoch if longer.
    `device` is "cpu" or "cuda". `threads` are torch's: one is fastest for batches of hundreds, and two on a busy
    machine can be many times slower. A checkpoint is written every `checkpoint_every` seconds.
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
    threads: int = 1
    checkpoint_every: float = 60

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "batch",
            "patience",
            "patience_steps",
            "check_steps",
            "k",
            "threads",
        ):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        if not self.learning_rate > 0 or self.weight_decay < 0:
            rates = f"{self.learning_rate} and {self.weight_decay}"
            raise DataError(
                f"learning_rate must be above 0 and weight_decay at least 0, got {rates}."
            )
        if self.device not in ("cpu", "cuda"):
            raise DataError(f"device must be cpu or cuda, got {self.device!r}.")


@dataclass(frozen=True, slots=True)
class Moment:
    """How far training is: epochs done, and the validation NDCG of each seed (none without validation)."""

    epoch: int
    epochs: int
    ndcg: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A scorer at its best epoch, and epochs with their validation NDCG (empty without validation)."""

    scorer: Factors
    seed: int
    best_epoch: int
    history: tuple[tuple[int, float], ...]


def train(
    model: Model,
    positives: Interactions,
    validation: Interactions | None = None,
    training: Training = Training(),  # noqa: B008  (frozen)
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a model on the positives of a log; with `validation`, keep the epoch that ranks it best.

    With a `checkpoint` file, a run that was killed goes on where it stopped and ends as if it had not been.
    """
    return train_seeds(model, positives, [seed], validation, training, checkpoint, progress)[0]


def train_seeds(
    model: Model,
    positives: Interactions,
    seeds: Sequence[int],
    validation: Interactions | None = None,
    training: Training = Training(),  # noqa: B008  (frozen)
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Trained]:
    """Train one model for each seed, all in the same steps: on a GPU much cheaper than one after another."""
    _require_device(training.device)
    if not seeds:
        raise DataError("seeds must name at least one, got none.")
    liked = _checked(positives.positives(), "positives")
    held_out = None if validation is None else _checked(validation.positives(), "validation")
    with _threads(training.threads):
        run = _Run(model, liked, held_out, training, tuple(seeds))
        return run.finish(None if checkpoint is None else Path(checkpoint), progress)


class _Run:
    """Seeds under training, and the best each has been."""

    def __init__(
        self,
        model: Model,
        positives: Interactions,
        held_out: Interactions | None,
        training: Training,
        seeds: tuple[int, ...],
    ) -> None:
        self.model, self.training, self.seeds = model, training, seeds
        self.n_users, self.n_items = positives.n_users, positives.n_items
        self.sampler = Sampler.of(positives, model.importance(positives), seeds, training.batch)
        graph = Graph.of(positives, model.hops, training.device) if model.hops else None
        start = _start(model, self.n_users + self.n_items, seeds)
        self.engine = _engine(model, start, graph, training)
        self.validation = (
            None
            if held_out is None
            else Validation.of(held_out, self.sampler.liked, training.k, model, training.device)
        )
        same = replace(training, epochs=1, checkpoint_every=0.0)  # neither changes where a run goes
        self.about = fingerprint((model, same, seeds), positives, held_out)
        steps = self.sampler.steps
        self.between = _up(training.check_steps, steps)
        self.patience = max(
            _up(training.patience, self.between), _up(training.patience_steps, steps * self.between)
        )
        self.epoch = 0
        self.looks: list[int] = []
        self.history: list[list[float]] = [[] for _ in seeds]
        self.best: list[Arrays] = [{} for _ in seeds]

    def finish(self, file: Path | None, progress: Progress | None) -> list[Trained]:
        """Train until every seed has stopped getting better, or to the last epoch."""
        checkpoint = None if file is None else Checkpoint(file, self.about)
        if checkpoint is not None and (saved := checkpoint.load()) is not None:
            self._restore(*saved)
        written = time.monotonic()
        for epoch in self._epochs():
            self.engine.run(epoch)
            self.epoch += 1
            self._judge()
            if progress is not None:
                latest = tuple(history[-1] for history in self.history if history)
                progress(Moment(self.epoch, self.training.epochs, latest))
            if (
                checkpoint is not None
                and time.monotonic() - written >= self.training.checkpoint_every
            ):
                checkpoint.save(*self._state())
                written = time.monotonic()
        if self.validation is None:
            self.best = [self._arrays(place) for place in range(len(self.seeds))]
        return [self._trained(place) for place in range(len(self.seeds))]

    def _epochs(self) -> Iterator[Epoch]:
        """Epochs to come; on a GPU the next one is drawn while this one is trained on."""
        if self.training.device == "cpu":
            while not self._is_over():
                yield self.sampler.draw(self.epoch)
            return
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self.sampler.draw, self.epoch)
            while not self._is_over():
                epoch = coming.result()
                coming = pool.submit(self.sampler.draw, self.epoch + 1)
                yield epoch

    def _is_over(self) -> bool:
        stopped = self.validation is not None and all(
            self._has_stopped(history) for history in self.history
        )
        return self.epoch >= self.training.epochs or stopped

    def _has_stopped(self, history: list[float]) -> bool:
        return len(history) - _best(history) >= self.patience

    def _judge(self) -> None:
        if self.validation is None or (
            self.epoch % self.between and self.epoch < self.training.epochs
        ):
            return
        self.looks.append(self.epoch)
        vectors = self.engine.vectors().view(-1, len(self.seeds), self.model.width)
        for place, history in enumerate(self.history):
            if self._has_stopped(history):
                history.append(history[-1])  # this seed is done: the others are waited for
                continue
            mine = vectors[:, place]
            weights = {name: values[place].detach() for name, values in self.engine.weights.items()}
            history.append(
                self.validation.ndcg(
                    self.model, mine[: self.n_users], mine[self.n_users :], weights
                )
            )
            if _best(history) == len(history):
                self.best[place] = self._arrays(place)

    def _arrays(self, place: int) -> Arrays:
        """A seed's vectors and weights, copied."""
        vectors = self.engine.vectors().view(-1, len(self.seeds), self.model.width)[:, place]
        weights = {f"weight.{name}": values[place] for name, values in self.engine.weights.items()}
        parts = {"vectors": vectors, **weights}
        return {name: np.array(values.detach().cpu().numpy()) for name, values in parts.items()}

    def _trained(self, place: int) -> Trained:
        best, history = self.best[place], self.history[place]
        weights = {
            name.removeprefix("weight."): values
            for name, values in best.items()
            if name != "vectors"
        }
        users, items = best["vectors"][: self.n_users], best["vectors"][self.n_users :]
        epoch = self.looks[_best(history) - 1] if history else self.epoch
        lived = tuple(zip(self.looks, history, strict=True))[: _best(history) + self.patience]
        return Trained(self.model.scorer(users, items, weights), self.seeds[place], epoch, lived)

    def _state(self) -> tuple[Arrays, dict[str, object]]:
        arrays = {f"parameter.{name}": values for name, values in self.engine.parameters().items()}
        arrays |= {f"moment.{name}": values for name, values in self.engine.moments().items()}
        for place, best in enumerate(self.best):
            arrays |= {f"best.{place}.{name}": values for name, values in best.items()}
        return arrays, {
            "epoch": self.epoch,
            "steps": self.engine.steps,
            "looks": self.looks,
            "history": self.history,
        }

    def _restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        def under(prefix: str) -> Arrays:
            return {
                name.removeprefix(prefix): values
                for name, values in arrays.items()
                if name.startswith(prefix)
            }

        self.epoch, self.looks, self.history = (
            numbers["epoch"],
            numbers["looks"],
            numbers["history"],
        )
        self.best = [under(f"best.{place}.") for place in range(len(self.seeds))]
        self.engine.restore(under("parameter."), under("moment."), numbers["steps"])


def _engine(model: Model, start: Arrays, graph: Graph | None, training: Training) -> Engine:
    settings = (training.learning_rate, training.weight_decay, training.device)
    if training.device == "cuda":
        with plain_words():
            return OnGpu(model, start, graph, *settings)
    from calibrank.models.engines.cpu import GraphOnCpu, OnCpu  # noqa: PLC0415  (a GPU needs no numba)

    return (
        OnCpu(model, start, None, *settings)
        if graph is None
        else GraphOnCpu(model, start, graph, *settings)
    )


def _best(history: Sequence[float]) -> int:
    """The first look, counted from 1, that no other beats; 0 before any."""
    return int(np.argmax(history)) + 1 if history else 0


def _up(whole: int, part: int) -> int:
    """How many parts cover the whole."""
    return -(-whole // part)


def _start(model: Model, nodes: int, seeds: tuple[int, ...]) -> Arrays:
    """Parameters before the first step, each seed's from its own number."""
    table = np.empty((nodes, len(seeds), model.width), dtype=np.float32)
    weights: list[Arrays] = []
    for place, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 0])
        table[:, place] = model.spread * rng.standard_normal((nodes, model.width), dtype=np.float32)
        weights.append(model.first_weights(rng))
    if model.in_ball:
        table /= np.maximum(np.linalg.norm(table, axis=-1, keepdims=True), 1)
    start = {"table": table.reshape(-1, model.width)}
    return start | {
        f"weight.{name}": np.stack([mine[name] for mine in weights]).astype(np.float32)
        for name in weights[0]
    }


def _checked(positives: Interactions, name: str) -> Interactions:
    if not len(positives):
        raise DataError(f"{name} must hold at least one positive, got none.")
    users = row_numbers("users", positives.users, positives.n_users)
    items = row_numbers("items", positives.items, positives.n_items)
    return Interactions(users, items, None, positives.n_users, positives.n_items)


def _require_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise DataError(
            "device cuda must be there, got no GPU that torch can use. Train with device cpu."
        )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
