"""A training run: epochs, validation, early stopping and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrank._internal import native
from calibrank.errors import DataError
from calibrank.models.checkpoints import Checkpoint, fingerprint
from calibrank.models.engines.base import Arrays, Engine
from calibrank.models.engines.cpu import make_cpu_engine
from calibrank.models.engines.dense import DenseEngine, explain_out_of_memory
from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch, Sampler
from calibrank.models.training import Progress, Trained, Training, TrainingStatus
from calibrank.models.validation import Validation
from calibrank.tables import Interactions

_WEIGHT = "weight."


class TrainingRun:
    """All seeds of a run, and the best parameters that each has had."""

    def __init__(
        self,
        model: Model,
        positives: Interactions,
        held_out: Interactions | None,
        training: Training,
        seeds: tuple[int, ...],
    ) -> None:
        self.model = model
        self.training = training
        self.seeds = seeds
        self.n_users = positives.n_users
        importance = model.importance(positives)
        self.sampler = Sampler.of(positives, importance, seeds, training.batch)
        self.engine = _make_engine(model, positives, training, seeds)
        self.validation: Validation | None = None
        if held_out is not None:
            self.validation = Validation.of(
                held_out, self.sampler.positives, training.k, training.device
            )
        # None of these changes the parameters after a given epoch, so they may differ on resuming.
        comparable = replace(training, epochs=1, checkpoint_every=0.0, threads=1)
        self.fingerprint = fingerprint((model, comparable, seeds), positives, held_out)
        steps = self.sampler.steps
        self.epochs_per_check = _ceil_divide(training.check_steps, steps)
        # Patience in checks: long enough for both `patience` epochs and `patience_steps` steps.
        self.patience = max(
            _ceil_divide(training.patience, self.epochs_per_check),
            _ceil_divide(training.patience_steps, steps * self.epochs_per_check),
        )
        self.epoch = 0
        self.checked_epochs: list[int] = []
        self.history: list[list[float]] = [[] for _ in seeds]
        self.best: list[Arrays] = [{} for _ in seeds]

    def finish(self, file: Path | None, progress: Progress | None) -> list[Trained]:
        """Train to the last epoch, or until no seed improves any more."""
        checkpoint = None if file is None else Checkpoint(file, self.fingerprint)
        if checkpoint is not None:
            self._resume(checkpoint)
        saved_at = time.monotonic()
        for epoch in self._epochs():
            self.engine.run(epoch)
            self.epoch += 1
            self._validate()
            if progress is not None:
                progress(self._status())
            is_due = time.monotonic() - saved_at >= self.training.checkpoint_every
            if checkpoint is not None and is_due:
                checkpoint.save(*self._state())
                saved_at = time.monotonic()
        if self.validation is None:
            self.best = [self._parameters(index) for index in range(len(self.seeds))]
        return [self._trained(index) for index in range(len(self.seeds))]

    def _epochs(self) -> Iterator[Epoch]:
        """The epochs still to train."""
        if self.training.device == "cpu":
            while not self._is_over():
                yield self.sampler.draw(self.epoch)
            return
        # A GPU leaves the CPU idle: draw the next epoch while this one is trained on.
        with ThreadPoolExecutor(1) as pool:
            upcoming = pool.submit(self.sampler.draw, self.epoch)
            while not self._is_over():
                epoch = upcoming.result()
                upcoming = pool.submit(self.sampler.draw, self.epoch + 1)
                yield epoch

    def _is_over(self) -> bool:
        if self.epoch >= self.training.epochs:
            return True
        if self.validation is None:
            return False
        return all(self._has_stopped(history) for history in self.history)

    def _has_stopped(self, history: list[float]) -> bool:
        return len(history) - _best_check(history) >= self.patience

    def _status(self) -> TrainingStatus:
        latest = tuple(history[-1] for history in self.history if history)
        return TrainingStatus(self.epoch, self.training.epochs, latest)

    def _validate(self) -> None:
        """Evaluate NDCG if a check is due, and keep the parameters of seeds that improved."""
        is_due = self.epoch % self.epochs_per_check == 0 or self.epoch >= self.training.epochs
        if self.validation is None or not is_due:
            return
        self.checked_epochs.append(self.epoch)
        vectors = self._vectors()
        for index, history in enumerate(self.history):
            if self._has_stopped(history):
                # This seed is finished; its history is only kept as long as those of the others.
                history.append(history[-1])
                continue
            history.append(self._ndcg(self.validation, vectors[:, index], index))
            if _best_check(history) == len(history):
                self.best[index] = self._parameters(index)

    def _ndcg(self, validation: Validation, vectors: Tensor, index: int) -> float:
        users = vectors[: self.n_users]
        items = vectors[self.n_users :]
        weights = {}
        for name, values in self.engine.weights.items():
            weights[name] = values[index].detach()
        with torch_threads(self.training.threads):
            return validation.ndcg(self.model, users, items, weights)

    def _vectors(self) -> Tensor:
        """The vectors of all nodes, as [node, seed, width]."""
        return self.engine.vectors().view(-1, len(self.seeds), self.model.width)

    def _parameters(self, index: int) -> Arrays:
        """A copy of one seed's vectors and weights."""
        tensors = {"vectors": self._vectors()[:, index]}
        for name, values in self.engine.weights.items():
            tensors[_WEIGHT + name] = values[index]
        # A tensor on the CPU shares its memory with the array, and training goes on: copy it.
        arrays = {}
        for name, values in tensors.items():
            arrays[name] = np.array(values.detach().cpu().numpy())
        return arrays

    def _trained(self, index: int) -> Trained:
        best = self.best[index]
        history = self.history[index]
        best_check = _best_check(history)
        users = best["vectors"][: self.n_users]
        items = best["vectors"][self.n_users :]
        scorer = self.model.scorer(users, items, _with_prefix(best, _WEIGHT))
        best_epoch = self.checked_epochs[best_check - 1] if history else self.epoch
        checks = tuple(zip(self.checked_epochs, history, strict=True))
        # Checks after this seed stopped only repeat its last value.
        return Trained(scorer, self.seeds[index], best_epoch, checks[: best_check + self.patience])

    def _state(self) -> tuple[Arrays, dict[str, object]]:
        """Everything that a checkpoint holds: arrays and numbers."""
        arrays: Arrays = {}
        for name, values in self.engine.parameters().items():
            arrays[f"parameter.{name}"] = values
        for name, values in self.engine.moments().items():
            arrays[f"moment.{name}"] = values
        for index, best in enumerate(self.best):
            for name, values in best.items():
                arrays[f"best.{index}.{name}"] = values
        numbers = {
            "epoch": self.epoch,
            "steps": self.engine.steps,
            "checked_epochs": self.checked_epochs,
            "history": self.history,
        }
        return arrays, numbers

    def _resume(self, checkpoint: Checkpoint) -> None:
        saved = checkpoint.load()
        if saved is None:
            return
        arrays, numbers = saved
        self._require_progress(checkpoint, numbers)
        self.epoch = numbers["epoch"]
        self.checked_epochs = numbers["checked_epochs"]
        self.history = numbers["history"]
        self.best = [_with_prefix(arrays, f"best.{index}.") for index in range(len(self.seeds))]
        for index, best in enumerate(self.best):
            # Before the first check there is no best state.
            expected = self._parameters(index) if best or self.checked_epochs else {}
            checkpoint.require_alike(best, expected)
        parameters = _with_prefix(arrays, "parameter.")
        moments = _with_prefix(arrays, "moment.")
        checkpoint.require_alike(parameters, self.engine.parameters())
        checkpoint.require_alike(moments, self.engine.moments())
        self.engine.restore(parameters, moments, numbers["steps"])

    def _require_progress(self, checkpoint: Checkpoint, numbers: dict[str, Any]) -> None:
        """Check how far a saved run has come: one value of NDCG per seed and check."""
        counts = [numbers.get("epoch"), numbers.get("steps"), *_list(numbers, "checked_epochs")]
        histories = _list(numbers, "history")
        are_counts = all(type(count) is int and count >= 0 for count in counts)
        checks = len(counts) - 2
        are_complete = len(histories) == len(self.seeds) and all(
            isinstance(history, list)
            and len(history) == checks
            and all(isinstance(ndcg, float) and 0 <= ndcg <= 1 for ndcg in history)
            for history in histories
        )
        if not are_counts or not are_complete:
            raise checkpoint.damage("an impossible number of epochs, or values of NDCG")


def _list(numbers: dict[str, Any], name: str) -> list[Any]:
    found = numbers.get(name)
    return found if isinstance(found, list) else []


def require_device(device: str) -> None:
    """Raise `DataError` if the device is a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise DataError(
            "device cuda", "be available", "no GPU that torch can use", "Train with device cpu."
        )


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use this many CPU threads in torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def initial_parameters(model: Model, n_nodes: int, seeds: tuple[int, ...]) -> Arrays:
    """The parameters before the first step; those of a seed do not depend on the other seeds."""
    table = np.empty((n_nodes, len(seeds), model.width), dtype=np.float32)
    weights: list[dict[str, Any]] = []
    for index, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 0])
        normal = rng.standard_normal((n_nodes, model.width), dtype=np.float32)
        table[:, index] = model.initial_std * normal
        weights.append(model.initial_weights(rng))
    if model.in_unit_ball:
        table /= np.maximum(np.linalg.norm(table, axis=-1, keepdims=True), 1)
    parameters: Arrays = {"table": table.reshape(-1, model.width)}
    for name in weights[0]:
        stacked = np.stack([of_seed[name] for of_seed in weights])
        parameters[_WEIGHT + name] = stacked.astype(np.float32)
    return parameters


def _make_engine(
    model: Model, positives: Interactions, training: Training, seeds: tuple[int, ...]
) -> Engine:
    layers = model.graph_layers
    graph = Graph.of(positives, layers, training.device) if layers else None
    start = initial_parameters(model, positives.n_users + positives.n_items, seeds)
    settings = (model, start, graph, training.learning_rate, training.weight_decay)
    if training.device == "cpu" and native.READY:
        return make_cpu_engine(*settings, training.threads)
    with explain_out_of_memory():
        return DenseEngine(*settings, training.device)


def _best_check(history: Sequence[float]) -> int:
    """The first check with the highest NDCG, counted from 1; 0 before the first check."""
    return int(np.argmax(history)) + 1 if history else 0


def _ceil_divide(total: int, size: int) -> int:
    return -(-total // size)


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names have this prefix, under their names without it."""
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
