"""A training run: epochs, validation, early stopping and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from calibrank._internal import native
from calibrank._internal.npz import Arrays
from calibrank.data.splits import Positives
from calibrank.errors import DataError
from calibrank.models.checkpoints import Checkpoint, fingerprint
from calibrank.models.cpu import make_cpu_engine
from calibrank.models.engines import DenseEngine, Engine, Graph, explain_out_of_memory
from calibrank.models.rankers import Model
from calibrank.models.sampling import Epoch, Sampler
from calibrank.models.training import Progress, Trained, Training, TrainingStatus
from calibrank.models.validation import Validation
from calibrank.tables import Interactions

_WEIGHT = "weight."
# Raised when the arrays of a checkpoint change: its digest and fingerprint vouch for the rest.
_FORMAT = 2


class TrainingRun:
    """The state of a run, and the best parameters that it has had."""

    def __init__(
        self,
        model: Model,
        positives: Interactions,
        held_out: Interactions | None,
        training: Training,
        seed: int,
    ) -> None:
        if training.device == "cuda" and not torch.cuda.is_available():
            found, remedy = "no GPU that torch can use", "Train with device cpu."
            raise DataError("device cuda", "be available", found, remedy)
        self.model = model
        self.training = training
        self.seed = seed
        self.n_users = positives.n_users
        trained = Positives.of(positives)
        importance = model.importance(positives)
        self.sampler = Sampler(positives, importance, seed, training.batch, trained)
        self.engine = _make_engine(model, positives, training, seed)
        self.validation: Validation | None = None
        if held_out is not None:
            self.validation = Validation.of(held_out, trained, training.k, training.device)
        # None of these changes the parameters after a given epoch, so they may differ on resuming.
        comparable = replace(training, epochs=1, checkpoint_every=0.0, threads=1)
        settings = (_FORMAT, model, comparable, seed)
        self.fingerprint = fingerprint(settings, positives, held_out)
        steps = self.sampler.steps
        self.epochs_per_check = _ceil_divide(training.check_steps, steps)
        # Patience in checks: long enough for both `patience` epochs and `patience_steps` steps.
        self.patience = max(
            _ceil_divide(training.patience, self.epochs_per_check),
            _ceil_divide(training.patience_steps, steps * self.epochs_per_check),
        )
        self.epoch = 0
        self.checked_epochs: list[int] = []
        self.history: list[float] = []
        self.best: Arrays = {}

    def finish(self, file: Path | None, progress: Progress | None) -> Trained:
        """Train to the last epoch, or until nothing improves any more."""
        checkpoint = None if file is None else Checkpoint(file, self.fingerprint)
        if checkpoint is not None:
            self._resume(checkpoint)
        saved_at = time.monotonic()
        for epoch in self._epochs():
            self.engine.run(epoch)
            self.epoch += 1
            self._validate()
            if progress is not None:
                latest = self.history[-1] if self.history else None
                progress(TrainingStatus(self.epoch, self.training.epochs, latest))
            is_due = time.monotonic() - saved_at >= self.training.checkpoint_every
            if checkpoint is not None and is_due:
                checkpoint.save(*self._state())
                saved_at = time.monotonic()
        if self.validation is None:
            self.best = self._parameters()
        vectors = self.best["vectors"]
        weights = _with_prefix(self.best, _WEIGHT)
        scorer = self.model.scorer(vectors[: self.n_users], vectors[self.n_users :], weights)
        best_epoch = self.checked_epochs[self._best_check() - 1] if self.history else self.epoch
        checks = tuple(zip(self.checked_epochs, self.history, strict=True))
        return Trained(scorer, self.seed, best_epoch, checks)

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
        return len(self.history) - self._best_check() >= self.patience

    def _best_check(self) -> int:
        """The first check with the highest NDCG, counted from 1; 0 before the first check."""
        return int(np.argmax(self.history)) + 1 if self.history else 0

    def _validate(self) -> None:
        """Evaluate NDCG if a check is due, and keep the parameters if it is the best so far."""
        is_due = self.epoch % self.epochs_per_check == 0 or self.epoch >= self.training.epochs
        if self.validation is None or not is_due:
            return
        self.checked_epochs.append(self.epoch)
        vectors = self.engine.vectors()
        weights = {name: values.detach() for name, values in self.engine.weights.items()}
        users, items = vectors[: self.n_users], vectors[self.n_users :]
        threads = self.training.threads if self.training.device == "cpu" else 1
        self.history.append(self.validation.ndcg(self.model, users, items, weights, threads))
        if self._best_check() == len(self.history):
            self.best = self._parameters()

    def _parameters(self) -> Arrays:
        """A copy of the vectors and weights."""
        tensors = {"vectors": self.engine.vectors()}
        for name, values in self.engine.weights.items():
            tensors[_WEIGHT + name] = values
        # A tensor on the CPU shares its memory with the array, and training goes on: copy it.
        return {name: np.array(values.detach().cpu().numpy()) for name, values in tensors.items()}

    def _state(self) -> tuple[Arrays, dict[str, object]]:
        """Everything that a checkpoint holds: arrays and numbers."""
        arrays: Arrays = {}
        groups = {"parameter": self.engine.parameters(), "moment": self.engine.moments()}
        for group, members in {**groups, "best": self.best}.items():
            for name, values in members.items():
                arrays[f"{group}.{name}"] = values
        numbers = {"epoch": self.epoch, "steps": self.engine.steps}
        return arrays, {**numbers, "checked_epochs": self.checked_epochs, "history": self.history}

    def _resume(self, checkpoint: Checkpoint) -> None:
        saved = checkpoint.load()
        if saved is None:
            return
        arrays, numbers = saved
        self.epoch = numbers["epoch"]
        self.checked_epochs = numbers["checked_epochs"]
        self.history = numbers["history"]
        self.best = _with_prefix(arrays, "best.")
        parameters = _with_prefix(arrays, "parameter.")
        self.engine.restore(parameters, _with_prefix(arrays, "moment."), numbers["steps"])


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use this many CPU threads in torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def initial_parameters(model: Model, n_nodes: int, seed: int) -> Arrays:
    """The parameters before the first step."""
    rng = np.random.default_rng([seed, 0])
    table = model.initial_std * rng.standard_normal((n_nodes, model.width), dtype=np.float32)
    if model.in_unit_ball:
        table /= np.maximum(np.linalg.norm(table, axis=-1, keepdims=True), 1)
    weights = model.initial_weights(rng)
    named = {_WEIGHT + name: values.astype(np.float32) for name, values in weights.items()}
    return {"table": table.astype(np.float32), **named}


def _make_engine(model: Model, positives: Interactions, training: Training, seed: int) -> Engine:
    layers = model.graph_layers
    graph = Graph.of(positives, layers, training.device) if layers else None
    start = initial_parameters(model, positives.n_users + positives.n_items, seed)
    if training.device == "cpu" and native.READY:
        return make_cpu_engine(model, start, graph, training)
    with explain_out_of_memory():
        return DenseEngine(model, start, graph, training)


def _ceil_divide(total: int, size: int) -> int:
    return -(-total // size)


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names have this prefix, under their names without it."""
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
