"""`calibrank train`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from calibrank._atomic import atomic_path
from calibrank.cli.console import (
    ItemOption,
    JsonOption,
    LabelOption,
    UserOption,
    console,
    log,
    print_json,
)
from calibrank.data import (
    Dataset,
    LeaveOneOut,
    Positives,
    RandomSplit,
    ReleasedSplit,
    Split,
    TimeSplit,
    population_negatives,
    with_negatives,
)
from calibrank.data.table import load_table
from calibrank.errors import DataError
from calibrank.propensity import Popularity
from calibrank.registry import DATASETS, load_dataset
from calibrank.scorers import SavedModel
from calibrank.tables import Interactions

if TYPE_CHECKING:
    from calibrank.models.training import TrainingStatus


class ModelName(StrEnum):
    """Base models by name."""

    bpr = "bpr"
    ncf = "ncf"
    cml = "cml"
    ubpr = "ubpr"
    lightgcn = "lightgcn"


class SplitName(StrEnum):
    """Splits by name."""

    random = "random"
    released = "released"
    time = "time"
    leave_one_out = "leave-one-out"


class Device(StrEnum):
    """Where to train."""

    cpu = "cpu"
    cuda = "cuda"


def train(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help=f"A table, or one of {', '.join(DATASETS)}.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for the model and the pairs to calibrate on."),
    ],
    model: Annotated[ModelName, typer.Option(help="Which model.")] = ModelName.bpr,
    data: Annotated[
        Path | None, typer.Option(help="Folder of a named dataset's files; fetched if allowed.")
    ] = None,
    split: Annotated[
        SplitName, typer.Option(help="Which positives to hold out.")
    ] = SplitName.random,
    negatives: Annotated[
        int | None,
        typer.Option(help="Negatives a held-out positive; unless given, as many as stand for all."),
    ] = None,
    user: UserOption = None,
    item: ItemOption = None,
    label: LabelOption = None,
    time: Annotated[str | None, typer.Option(help="Time column.")] = None,
    dim: Annotated[
        int | None, typer.Option(help="Length of vectors; the paper's unless given.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="At most so many.")] = 200,
    batch: Annotated[int, typer.Option(help="Positives a step.")] = 512,
    patience: Annotated[
        int, typer.Option(help="Epochs without a better NDCG before stopping.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Decides all that is random.")] = 0,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.cpu,
    threads: Annotated[int, typer.Option(help="CPU threads; more than one is rarely faster.")] = 1,
    json: JsonOption = False,
) -> None:
    """Train a base model, and set aside pairs to calibrate it on. Killed and run again, it goes on where it was.

    Example: calibrank train log.parquet --model lightgcn -o model
    """
    from calibrank import models, registry  # noqa: PLC0415

    dataset = (
        load_dataset(source, data)
        if source in DATASETS
        else load_table(source, None, user, item, label, time)
    )
    kept, held = _split(split, seed).divide(dataset.train.positives())
    if not len(held):
        raise DataError(
            f"{source} must have users with 5 positives or more to hold some out, got none."
        )
    chosen = registry.find("model", registry.MODELS, model.value)
    chosen = chosen if dim is None else type(chosen)(dim=dim)
    training = models.Training(
        epochs, batch, patience=patience, device=device.value, threads=threads
    )
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "checkpoint.safetensors"
    with _watching(chosen.name, epochs) as progress:
        done = models.train(chosen, kept, held, training, seed, checkpoint, progress)
    best = max(ndcg for _, ndcg in done.history)
    about = {
        "model": repr(chosen),
        "training": repr(training),
        "seed": seed,
        "split": split.value,
        "source": source,
    }
    about |= {"best_epoch": done.best_epoch, "validation_ndcg": best}
    SavedModel(done.scorer, dataset.users, dataset.items, about).save(out)
    pairs, weight = _pairs(kept, held, negatives, seed)
    _write(out / "calibration.parquet", dataset, pairs, _evidence_columns(pairs, kept, weight))
    if dataset.test is not None:
        _write(out / "test.parquet", dataset, dataset.test, {})
    checkpoint.unlink(missing_ok=True)
    if json:
        print_json(
            {"out": str(out), **about, "calibration_rows": len(pairs), "negative_weight": weight}
        )
        return
    console.print(
        f"[bold]{chosen.name}[/] on {kept!r}: best epoch {done.best_epoch}, validation NDCG@5 {best:.4f}"
    )
    console.print(f"[bold]Saved:[/] {out}. Next:")
    heavy = "" if weight is None else " --weight weight"
    console.print(
        f"  calibrank score {out} {out}/calibration.parquet -o scores.parquet", highlight=False
    )
    console.print(
        f"  calibrank fit scores.parquet --propensity propensity{heavy} -o map.json",
        highlight=False,
    )


def _split(name: SplitName, seed: int) -> Split:
    splits = {
        SplitName.random: RandomSplit(seed=seed),
        SplitName.released: ReleasedSplit(),
        SplitName.time: TimeSplit(),
        SplitName.leave_one_out: LeaveOneOut(seed=seed),
    }
    return splits[name]


def _pairs(
    kept: Interactions, held: Interactions, negatives: int | None, seed: int
) -> tuple[Interactions, float | None]:
    """Pairs to calibrate on, and the weight of a negative unless it is 1."""
    positives = Positives.of(kept, held)
    rng = np.random.default_rng([seed, 2])
    if negatives is not None:
        return with_negatives(held, positives, negatives, rng), None
    each, weight = population_negatives(positives)
    return with_negatives(held, positives, each, rng), weight


def _evidence_columns(
    pairs: Interactions, kept: Interactions, weight: float | None
) -> dict[str, pa.Array]:
    propensity = Popularity().fit(kept).predict(pairs.users, pairs.items)
    columns = {"propensity": pa.array(propensity)}
    if weight is not None:
        columns["weight"] = pa.array(np.where(pairs.labels == 1, 1.0, weight))
    return columns


def _write(path: Path, dataset: Dataset, pairs: Interactions, columns: dict[str, pa.Array]) -> None:
    names = {"user": dataset.users.names[pairs.users], "item": dataset.items.names[pairs.items]}
    table = pa.table({**names, "label": pairs.labels.astype(np.int8), **columns})
    with atomic_path(path) as partial:
        pq.write_table(table, partial)


@contextmanager
def _watching(name: str, epochs: int) -> Iterator[Callable[["TrainingStatus"], None]]:
    """A bar over epochs with what validation says; nothing where nobody watches."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} epochs"),
    )
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(
        *columns, *times, console=log, transient=True, disable=not log.is_terminal
    ) as bar:
        task = bar.add_task(name, total=epochs)

        def tell(moment: "TrainingStatus") -> None:
            words = f"{name}, NDCG@5 {moment.ndcg[0]:.4f}" if moment.ndcg else name
            bar.update(task, completed=moment.epoch, description=words)

        yield tell
