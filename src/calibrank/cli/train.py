"""`calibrank train`."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrank._internal.atomic import atomic_path
from calibrank._internal.validation import Floats
from calibrank.cli import console
from calibrank.cli.declared import choose_label
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.data import Dataset, Positives, population_negatives, with_negatives
from calibrank.data.table import load_table
from calibrank.errors import DataError
from calibrank.propensity import Exposure, Popularity
from calibrank.registry import DATASETS, MODELS, SPLITS, find, load_dataset
from calibrank.scorers import SavedModel
from calibrank.tables import Interactions
from calibrank.tabular.columns import EXPOSURE, RELATIVE_PROPENSITY, Roles
from calibrank.tabular.labels import Threshold
from calibrank.tabular.read import Table

if TYPE_CHECKING:
    from calibrank.models.training import TrainingStatus


def train(given: Given) -> None:
    """Train a base model and hold out pairs to calibrate it on."""
    # Options are checked before anything is loaded or trained.
    if given.source in DATASETS:
        given.refuse(f"with {given.source}", "user", "item", "label", "time")
    else:
        given.refuse("with a table", "data")
    out = given.out
    console.require_output(out, is_folder=True)
    from calibrank import models  # noqa: PLC0415  (torch)

    dataset = _load(given)
    rows, rows_out = _hold_out(dataset, given)
    # Models learn from positives; dislikes are kept to calibrate on.
    kept, held_out = rows.positives(), rows_out.positives()
    # Made before training: a log that leaves no pairs to calibrate on is refused at once.
    weight, tables = _tables(dataset, kept, held_out, rows_out, given)
    model = find("model", MODELS, given.model)
    model = model if given.dim is None else type(model)(dim=given.dim)
    training = models.Training(given.epochs, device=given.device)
    # A run that was interrupted finds its checkpoint here and continues from it.
    checkpoint = out / "checkpoint.npz"
    with console.progress_bar(model.name, given.epochs) as advance:
        done = 0

        def on_epoch(moment: "TrainingStatus") -> None:
            nonlocal done
            ndcg = f", NDCG@5 {moment.ndcg:.4f}" if moment.ndcg is not None else ""
            advance(moment.epoch - done, f"{model.name}{ndcg}")
            done = moment.epoch

        trained = models.train(model, kept, held_out, training, given.seed, checkpoint, on_epoch)
    ndcg = max(value for _, value in trained.history)
    about = {"model": repr(model), "training": repr(training), "seed": given.seed}
    about |= {"split": given.split, "source": given.source}
    about |= {"best_epoch": trained.best_epoch, "validation_ndcg": ndcg}
    saved = SavedModel(trained.scorer, dataset.users, dataset.items, about)
    with ExitStack() as files:
        # All files get their names at the end, or none does: a disk may be full.
        for name, table in tables.items():
            partial = files.enter_context(atomic_path(out / f"{name}.parquet"))
            pq.write_table(table, partial)
        saved.save(out)
    checkpoint.unlink(missing_ok=True)
    n_rows = tables["calibration"].num_rows
    about |= {"calibration_rows": n_rows, "negative_weight": weight}
    console.answer({"out": str(out), **about})
    console.show(
        f"[bold]{model.name}[/] trained on {len(kept):,} positives: best epoch "
        f"{trained.best_epoch}, validation NDCG@5 {ndcg:.4f}"
    )
    console.show(f"[bold]Saved:[/] {console.shown(out)}. Next:")
    next_step = f"calibrank score {out} {out}/{list(tables)[-1]}.parquet -o scores.parquet"
    console.show(f"  {console.shown(next_step)}\n  calibrank fit scores.parquet -o map.json")


def _load(given: Given) -> Dataset:
    if given.source in DATASETS:
        return load_dataset(given.source, given.data)
    label, positive = given.label, None
    table = None if label is None else Table.find(given.source)
    if table is not None and label not in table.columns():
        rule = choose_label(table, label).rule
        if not isinstance(rule, Threshold):
            raise UsageError(
                "--label",
                "be a column of 0 and 1, or a comparison such as 'rating >= 4'",
                f"{label!r}: base models are trained on single likes",
            )
        label, positive = None, str(rule)
    kind = {None: None, "interactions": "positives"}.get(given.log, "impressions")
    named = (given.user, given.item, label, given.time)
    return load_table(given.source, None, *named, kind, positive)


def _hold_out(dataset: Dataset, given: Given) -> tuple[Interactions, Interactions]:
    """The rows to train on, and those held out for early stopping and calibration."""
    split = find("split", SPLITS, given.split)().with_seed(given.seed)
    rows = dataset.train if dataset.log == "impressions" else dataset.train.positives()
    kept, held_out = split.divide(rows)
    if not held_out.labels.any():
        raise DataError(
            given.source,
            "have users with 5 positives or more to hold some out",
            "none",
            "Add rows of active users, or check the user column.",
        )
    return kept, held_out


def _tables(
    dataset: Dataset, kept: Interactions, held_out: Interactions, rows: Interactions, given: Given
) -> tuple[float | None, dict[str, pa.Table]]:
    """The weight of negatives, and tables by name, the one to calibrate on last.

    They are test pairs, held-out positives with sampled negatives, and held-out impressions.
    """
    positives = Positives.of(kept, held_out)
    # Another generator than the split's: which negatives are drawn does not depend on it.
    rng = np.random.default_rng([given.seed, 2])
    per_positive, weight = given.negatives, None
    if per_positive is None:
        per_positive, weight = population_negatives(positives)
    pairs = with_negatives(held_out, positives, per_positive, rng)
    # Popularity in the training log: the held-out positives are what it is used on.
    propensity = Popularity().fit(kept).predict(pairs.users, pairs.items)
    columns = {RELATIVE_PROPENSITY: propensity}
    if weight is not None:
        columns["weight"] = np.where(pairs.labels == 1, 1.0, weight)
    tables = {}
    if dataset.test is not None:
        tables["test"] = _table(dataset, dataset.test, {})
    tables["calibration"] = _table(dataset, pairs, columns)
    if dataset.log == "impressions":
        exposure = Exposure().fit(dataset.train).predict(rows.users, rows.items)
        tables["impressions"] = _table(dataset, rows, {EXPOSURE: exposure}, "impressions")
    return weight, tables


def _table(
    dataset: Dataset, pairs: Interactions, columns: dict[str, Floats], log_kind: str | None = None
) -> pa.Table:
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
    return table.replace_schema_metadata(roles.metadata())
