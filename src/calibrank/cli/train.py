"""`calibrank train`."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrank._internal.atomic import atomic_path
from calibrank.cli import console, options
from calibrank.cli.declared import choose_label
from calibrank.cli.failures import UsageError
from calibrank.data import Dataset, Positives, population_negatives, with_negatives
from calibrank.data.table import load_table
from calibrank.errors import DataError
from calibrank.propensity import Exposure, Popularity
from calibrank.registry import DATASETS, MODELS, SPLITS, find, load_dataset
from calibrank.scorers import SavedModel
from calibrank.tables import Interactions
from calibrank.tabular.labels import Threshold
from calibrank.tabular.read import Table
from calibrank.tabular.roles import EXPOSURE, RELATIVE_PROPENSITY, Roles

if TYPE_CHECKING:
    from calibrank.models import Model
    from calibrank.models.training import TrainingStatus


def train(
    source: str,
    out: Path,
    model: str,
    data: Path | None,
    split: str,
    negatives: int | None,
    user: str | None,
    item: str | None,
    label: str | None,
    log_kind: options.LogKind | None,
    time: str | None,
    dim: int | None,
    epochs: int,
    seed: int,
    device: options.Device,
    json: bool,
) -> None:
    """Train a base model and hold out pairs to calibrate it on."""
    # Options are checked before anything is loaded or trained.
    if source in DATASETS:
        given = {"--user": user, "--item": item, "--label": label}
        console.require_unused(f"with {source}", {**given, "--time": time})
    else:
        console.require_unused("with a table", {"--data": data})
    console.require_folder(out)
    from calibrank import models  # noqa: PLC0415  (torch)

    dataset = _load(source, data, user, item, label, time, log_kind)
    kept, held_out = _hold_out(dataset, source, split, seed)
    impressions = held_out if dataset.log == "impressions" else None
    # Models learn from positives; dislikes are kept to calibrate on.
    kept, held_out = kept.positives(), held_out.positives()
    chosen = _model(model, dim)
    training = models.Training(epochs, device=device.value)
    out.mkdir(parents=True, exist_ok=True)
    # A run that was interrupted finds its checkpoint here and continues from it.
    checkpoint = out / "checkpoint.safetensors"
    with console.counting_bar(epochs, chosen.name) as advance:
        done = 0

        def on_epoch(moment: "TrainingStatus") -> None:
            nonlocal done
            ndcg = f", NDCG@5 {moment.ndcg[0]:.4f}" if moment.ndcg else ""
            advance(moment.epoch - done, f"{chosen.name}{ndcg}")
            done = moment.epoch

        trained = models.train(chosen, kept, held_out, training, seed, checkpoint, on_epoch)
    ndcg = max(value for _, value in trained.history)
    about = {"model": repr(chosen), "training": repr(training), "seed": seed, "split": split}
    about |= {"source": source, "best_epoch": trained.best_epoch, "validation_ndcg": ndcg}
    SavedModel(trained.scorer, dataset.users, dataset.items, about).save(out)
    pairs, weight = _calibration_pairs(kept, held_out, negatives, seed)
    _write_tables(out, dataset, pairs, _evidence_columns(pairs, kept, weight))
    if impressions is not None:
        _write_impressions(out, dataset, impressions)
    checkpoint.unlink(missing_ok=True)
    if json:
        rows = {"calibration_rows": len(pairs), "negative_weight": weight}
        console.print_json({"out": str(out), **about, **rows})
        return
    console.show(
        f"[bold]{chosen.name}[/] trained on {len(kept):,} positives: best epoch "
        f"{trained.best_epoch}, validation NDCG@5 {ndcg:.4f}"
    )
    _print_next_steps(out, "calibration" if impressions is None else "impressions")


def _load(
    source: str,
    data: Path | None,
    user: str | None,
    item: str | None,
    label: str | None,
    time: str | None,
    log_kind: options.LogKind | None,
) -> Dataset:
    if source in DATASETS:
        return load_dataset(source, data)
    positive = None
    table = None if label is None else Table.find(source)
    if table is not None and label not in table.columns():
        rule = choose_label(table, label).rule
        if not isinstance(rule, Threshold):
            raise UsageError(
                "--label",
                "be a column of 0 and 1, or a comparison such as 'rating >= 4'",
                f"{label!r}: base models are trained on single likes",
            )
        label, positive = None, str(rule)
    kind = None
    if log_kind is not None:
        kind = "positives" if log_kind is options.LogKind.interactions else "impressions"
    return load_table(source, None, user, item, label, time, kind, positive)


def _hold_out(
    dataset: Dataset, source: str, split: str, seed: int
) -> tuple[Interactions, Interactions]:
    """The rows to train on, and those held out for early stopping and calibration."""
    kind = find("split", SPLITS, split)
    # Splits by item or by time involve no randomness and take no seed.
    is_random = any(field.name == "seed" for field in fields(kind))
    settings: dict[str, Any] = {"seed": seed} if is_random else {}
    chosen = kind(**settings)
    rows = dataset.train if dataset.log == "impressions" else dataset.train.positives()
    kept, held_out = chosen.divide(rows)
    if not held_out.labels.any():
        raise DataError(
            source,
            "have users with 5 positives or more to hold some out",
            "none",
            "Add rows of active users, or check the user column.",
        )
    return kept, held_out


def _model(name: str, dim: int | None) -> "Model":
    chosen = find("model", MODELS, name)
    return chosen if dim is None else type(chosen)(dim=dim)


def _print_next_steps(out: Path, table: str) -> None:
    console.show(f"[bold]Saved:[/] {console.shown(out)}. Next:")
    for command in (
        f"calibrank score {out} {out}/{table}.parquet -o scores.parquet",
        "calibrank fit scores.parquet -o map.json",
    ):
        console.show(f"  {console.shown(command)}")


def _calibration_pairs(
    kept: Interactions, held_out: Interactions, negatives: int | None, seed: int
) -> tuple[Interactions, float | None]:
    """Held-out positives and sampled negatives, and the weight of a negative unless it is 1."""
    positives = Positives.of(kept, held_out)
    # Another generator than the split's: which negatives are drawn does not depend on it.
    rng = np.random.default_rng([seed, 2])
    if negatives is not None:
        return with_negatives(held_out, positives, negatives, rng), None
    per_positive, weight = population_negatives(positives)
    return with_negatives(held_out, positives, per_positive, rng), weight


def _evidence_columns(
    pairs: Interactions, kept: Interactions, weight: float | None
) -> dict[str, pa.Array]:
    # Popularity in the training log: the held-out positives are what it is used on.
    propensity = Popularity().fit(kept).predict(pairs.users, pairs.items)
    columns = {RELATIVE_PROPENSITY: pa.array(propensity)}
    if weight is not None:
        columns["weight"] = pa.array(np.where(pairs.labels == 1, 1.0, weight))
    return columns


def _write_tables(
    out: Path, dataset: Dataset, pairs: Interactions, columns: dict[str, pa.Array]
) -> None:
    _write(out / "calibration.parquet", dataset, pairs, columns)
    if dataset.test is not None:
        _write(out / "test.parquet", dataset, dataset.test, {})


def _write_impressions(out: Path, dataset: Dataset, pairs: Interactions) -> None:
    """Write the held-out likes and dislikes with their exposure in the whole log."""
    propensity = Exposure().fit(dataset.train).predict(pairs.users, pairs.items)
    columns = {EXPOSURE: pa.array(propensity)}
    _write(out / "impressions.parquet", dataset, pairs, columns, "impressions")


def _write(
    path: Path,
    dataset: Dataset,
    pairs: Interactions,
    columns: dict[str, pa.Array],
    log_kind: str | None = None,
) -> None:
    table = pa.table(
        {
            "user": dataset.users.names[pairs.users],
            "item": dataset.items.names[pairs.items],
            "label": pairs.labels.astype(np.int8),
            **columns,
        }
    )
    # Every column is named after its role.
    roles = Roles({name: name for name in table.column_names}, "calibrank train", log_kind)
    with atomic_path(path) as partial:
        pq.write_table(table.replace_schema_metadata(roles.metadata()), partial)
