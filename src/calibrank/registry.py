"""Every member of calibrank by name: the one place where a string becomes an object.

A new calibrator, metric, propensity, split, dataset, exporter or model is one file plus
one line here; `tests/test_registry.py` fails if a member is missing or escapes the laws.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from calibrank import curves, export, metrics
from calibrank._internal.expressions import parse_value
from calibrank.curves import Auto, Calibrator
from calibrank.data.official import load_coat, load_kuairand, load_kuairec, load_yahoo_r3
from calibrank.data.splits import RandomSplit, ReleasedSplit, Split, TimeSplit
from calibrank.data.table import Dataset, load_table
from calibrank.decisions import CUTS, Cut, PooledPrecision, Precision, Promise
from calibrank.decisions import Recall as PromisedRecall
from calibrank.errors import DataError
from calibrank.evidence import Evidence, impressions, ips, naive, positive_ips
from calibrank.metrics import FieldECE, FieldRCE, Metric
from calibrank.model import Model
from calibrank.models import BPR, CML, NCF, UBPR, LightGCN
from calibrank.models import Model as BaseModel
from calibrank.propensity import Exposure, Known, Logistic, NaiveBayes, Popularity, Random, Uniform
from calibrank.terms import Group, Level, Position, Smooth, TermSpec

Member = TypeVar("Member", bound=Any)


def _by_name(*members: Member) -> dict[str, Member]:
    return {member.name: member for member in members}


def _of_kind(what: str, text: str, members: Mapping[str, type], kind: type) -> Any:
    """The value of a text, if it is of a kind."""
    value = parse_value(what, text, members)
    if not isinstance(value, kind):
        raise DataError(what, f"be of {', '.join(members)}", f"{text!r}")
    return value


CALIBRATORS: dict[str, Calibrator] = _by_name(
    curves.MinMax(),
    curves.Sigmoid(),
    curves.Histogram(),
    curves.Isotonic(),
    curves.BBQ(),
    curves.Spline(),
    curves.Temperature(),
    curves.Platt(),
    curves.Beta(),
    curves.Gaussian(),
    curves.Gamma(),
    curves.GammaGaussian(),
)
"""One of each with its defaults: baselines, then non-parametric, then parametric methods."""

SELECTORS: dict[str, Auto] = _by_name(Auto())
"""They choose among calibrators: what loops over `CALIBRATORS` would fit the chosen one twice."""

METRICS: dict[str, Metric] = _by_name(
    metrics.LogLoss(),
    metrics.ConstantLogLoss(),
    metrics.LogLossGain(),
    metrics.Brier(),
    metrics.ECE(),
    metrics.DebiasedECE(),
    metrics.SmoothECE(),
    metrics.EqualMassECE(),
    metrics.MCE(),
    metrics.ReleasedECE(),
    metrics.ReleasedMCE(),
    metrics.CalibrationInTheLarge(),
    metrics.CalibrationSlope(),
    metrics.CalibrationIntercept(),
    metrics.Miscalibration(),
    metrics.Discrimination(),
    metrics.AUC(),
    metrics.GAUC(),
    metrics.NDCG(5),
    metrics.Recall(5),
    metrics.ECE() @ 5,
)
"""One of each that needs no column, with its defaults."""

METRIC_KINDS: dict[str, type[Metric]] = {
    kind.__name__: kind for kind in (*map(type, METRICS.values()), FieldECE, FieldRCE)
}
"""The names that `parse_metric` knows."""
del METRIC_KINDS["Top"]  # written as "ECE@5"

PROMISES: dict[str, type[Promise]] = {
    kind.__name__: kind for kind in (Precision, PromisedRecall, PooledPrecision)
}
"""What `parse_promise` knows; its `Recall` is a promise, that of `METRICS` a metric."""

EVIDENCE: dict[str, Callable[..., Evidence]] = {
    function.__name__: function for function in (naive, ips, positive_ips, impressions)
}
"""How labels become evidence."""

PROPENSITIES: dict[str, type] = {
    "popularity": Popularity,
    "exposure": Exposure,
    "uniform": Uniform,
    "random": Random,
    "naive_bayes": NaiveBayes,
    "logistic": Logistic,
    "known": Known,
}

SPLITS: dict[str, type[Split]] = {
    "random": RandomSplit,
    "released": ReleasedSplit,
    "time": TimeSplit,
}

DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "coat": load_coat,
    "yahoo_r3": load_yahoo_r3,
    "kuairec": load_kuairec,
    "kuairand": load_kuairand,
}
"""Loaders of the official layouts."""

EXPORTERS: dict[str, Callable[..., Any]] = {
    "sql": export.to_sql,
    "vespa": export.to_vespa,
    "painless": export.to_painless,
    "onnx": export.to_onnx,
    "torch": export.to_torch,
    "json": export.to_json,
}

MODELS: dict[str, BaseModel] = _by_name(BPR(), NCF(), CML(), UBPR(), LightGCN())
"""The base models with the paper's settings; only training them needs torch."""


def find(what: str, members: Mapping[str, Member], name: str) -> Member:
    """The member of that name, whatever its case and whether words are joined by - or _.

    >>> find("method", CALIBRATORS, "gammagaussian")
    GammaGaussian(margin=0.01)
    """
    wanted = _plain(name)
    for known, member in members.items():
        if _plain(known) == wanted:
            return member
    raise DataError(f"the {what}", f"be one of {', '.join(members)}", f"{name!r}")


TERMS: dict[str, type[TermSpec]] = {
    spec.__name__: spec for spec in (Level, Smooth, Group, Position)
}
"""What can be added to a calibrator."""


def parse_model(text: str) -> Calibrator | Model:
    """The model of a text, as `repr` writes it and `record.recipe` keeps it.

    >>> parse_model("Gaussian() + Level('country')")
    Gaussian() + Level('country')
    >>> parse_model("Platt")
    Platt()
    """
    selectors = {name: type(member) for name, member in SELECTORS.items()}
    calibrators = {name: type(member) for name, member in CALIBRATORS.items()}
    model = parse_value("a model", text, {**calibrators, **selectors, **TERMS})
    if not isinstance(model, Calibrator | Model):
        raise DataError("a model", "be a calibrator, or one plus terms", f"{text!r}")
    return model


def parse_metric(text: str) -> Metric:
    """The metric of a text, as `str(metric)` writes it.

    >>> parse_metric("ECE(bins=20) @ 5")
    ECE(bins=20) @ 5
    >>> print(parse_metric('FieldECE("country")'), parse_metric("NDCG@10"))
    FieldECE("country") NDCG@10
    """
    return _of_kind("a metric", text, METRIC_KINDS, Metric)


def parse_promise(text: str) -> Promise:
    """The promise of a text, as `repr` writes it.

    >>> parse_promise("Recall(0.8)")
    Recall(at_least=0.8)
    """
    return _of_kind("a promise", text, PROMISES, Promise)


def parse_cut(text: str) -> Cut:
    """The kind of cut of a text, with its values if they are not the usual ones.

    >>> parse_cut("rank"), parse_cut("Rank((5, 10, 20))").values
    (Rank(), (5.0, 10.0, 20.0))
    """
    kinds = {type(cut).__name__: type(cut) for cut in CUTS}
    if "(" not in text:
        return find("cut", kinds, text)()
    return _of_kind("a cut", text, kinds, Cut)


def load_dataset(name: str, folder: str | Path | None = None) -> Dataset:
    """Load a dataset from the folder of its official files.

    Without a folder, the error says where to get them. A folder that holds `train.parquet` and
    `test.parquet` instead is read as tables of user, item and label.
    """
    loader = find("dataset", DATASETS, name)
    folder = Path(name if folder is None else folder)
    if (folder / "train.parquet").is_file():
        test = folder / "test.parquet"
        return replace(
            load_table(folder / "train.parquet", test if test.is_file() else None), name=name
        )
    return loader(folder)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
