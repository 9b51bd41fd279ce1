"""Experiment specs: TOML files whose every key and name is checked."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import calibrank
from calibrank._internal.arguments import whole
from calibrank._internal.json import Fields
from calibrank.curves import Calibrator
from calibrank.errors import DataError
from calibrank.models import Model, Training
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS, DATASETS, EVIDENCE, MODELS, PROPENSITIES, SPLITS

EXPERIMENT_DATASETS = ("synthetic", *DATASETS)
# More negatives or epochs than this are a mistake, and would exhaust memory or patience.
_LARGEST_COUNT = 1_000_000
# Settings of a model that are the trainer's.
_OF_TRAINING = ("epochs", "learning_rate")
_REMEDY = "Correct the spec."

Settings = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Spec:
    """One experimental protocol.

    Parameters
    ----------
    negatives : negatives per held-out positive, by dataset and loss, with "default" for all other
        datasets. A loss without a number has the largest of the others; 0 means as many as
        represent all unobserved pairs.
    settings : settings that differ from the defaults, by dataset and model, among them its
        learning rate, and the number of epochs where validation does not decide.
    method_settings : settings of calibrators that differ from the defaults, by dataset and method.
    sweep : further numbers of negatives to try, on the first split.
    estimators : propensity estimators to try besides popularity, on the first split.
    power, clip : settings of the popularity estimator.
    """

    name: str
    title: str
    why: str
    splits: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    losses: tuple[str, ...]
    negatives: dict[str, dict[str, int]]
    why_negatives: str
    settings: Settings = field(default_factory=dict)
    method_settings: Settings = field(default_factory=dict)
    sweep: tuple[int, ...] = ()
    estimators: tuple[str, ...] = ()
    power: float = 0.5
    clip: float = 0.1

    @classmethod
    def load(cls, path: Path) -> Spec:
        """Read a spec; an unknown key, an unknown name or a missing key is an error."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(path, f"be TOML: {error}") from None
        given = Fields(str(path), values, _REMEDY)
        given.only(*[each.name for each in fields(cls) if each.name != "name"])
        spec = replace(given, values={**values, "name": path.stem}).build(cls)
        for name, kinds in (("settings", MODELS), ("method_settings", CALIBRATORS)):
            for dataset in getattr(spec, name):
                by_member = given.child(name).child(dataset)
                for member in by_member.values:
                    _build(type(kinds[member]), by_member.child(member))
        return spec

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {"splits": SPLITS, "models": MODELS}
        known |= {"methods": CALIBRATORS, "losses": EVIDENCE, "estimators": PROPENSITIES}
        for key, members in known.items():
            _require_names(key, getattr(self, key), members)
            if not getattr(self, key) and key != "estimators":
                raise DataError(key, "name at least one", "none", _REMEDY)
        _require_names("negatives", self.negatives, ("default", *EXPERIMENT_DATASETS))
        # Settings of a model or method that the spec does not use are a mistake.
        for key, used in (("settings", self.models), ("method_settings", self.methods)):
            _require_names(key, getattr(self, key), EXPERIMENT_DATASETS)
            for by_member in getattr(self, key).values():
                _require_names(key, by_member, used)
        Popularity(self.power, self.clip)  # checks both
        if "default" not in self.negatives:
            raise DataError("negatives", "have a default", ", ".join(self.negatives), _REMEDY)
        for count in self.sweep:
            whole("sweep", count, 0, _LARGEST_COUNT)
        for dataset, by_loss in self.negatives.items():
            _require_names(f"negatives of {dataset}", by_loss, self.losses)
            if not by_loss:
                raise DataError(f"negatives of {dataset}", "name a loss", "none", _REMEDY)
            for loss, count in by_loss.items():
                whole(f"negatives of {dataset}, {loss}", count, 0, _LARGEST_COUNT)

    def negatives_for(self, dataset: str, loss: str) -> int:
        """Negatives per held-out positive."""
        by_loss = self.negatives.get(dataset, self.negatives["default"])
        return by_loss.get(loss, max(by_loss.values()))

    def calibrator_for(self, dataset: str, method: str) -> Calibrator:
        """A calibrator with the settings for a dataset."""
        settings = self.method_settings.get(dataset, {}).get(method, {})
        # The registry holds each calibrator with its defaults.
        kind: Any = type(CALIBRATORS[method])
        return kind(**settings)

    def settings_for(self, dataset: str, model: str) -> tuple[tuple[str, float], ...]:
        """The model's settings that differ from its defaults."""
        return tuple(sorted(self.settings.get(dataset, {}).get(model, {}).items()))


def configured(model: str, settings: dict[str, Any], training: Training) -> tuple[Model, Training]:
    """The model to train and how; of the settings, some are the trainer's."""
    own = dict(settings)
    of_training = {name: own.pop(name) for name in _OF_TRAINING if name in own}
    return replace(MODELS[model], **own), replace(training, **of_training)


def find_folder(name: str) -> Path:
    """The folder of an experiment: a path, or a name under `reproduce/`.

    `reproduce/` is looked for in the current folder and in calibrank's own repository.
    """
    repository = Path(calibrank.__file__).parents[2]
    for parent in (Path(), Path("reproduce"), repository / "reproduce"):
        if any((parent / name).glob("*.toml")):
            return parent / name
    remedy = "Run it from calibrank's repository."
    raise DataError(name, "be a folder of specs (*.toml)", "no such folder", remedy)


def load_specs(folder: Path) -> list[Spec]:
    """All specs of a folder, by name."""
    return [Spec.load(path) for path in sorted(folder.glob("*.toml"))]


def choose(
    specs: Sequence[Spec], names: Sequence[str] | None, models: Sequence[str] | None
) -> tuple[Spec, ...]:
    """Only the named specs and models; all of them where none is named."""
    known_models: dict[str, None] = {}
    for spec in specs:
        known_models |= dict.fromkeys(spec.models)
    _require_names("spec", names or (), [spec.name for spec in specs])
    _require_names("model", models or (), list(known_models))
    chosen = []
    for spec in specs:
        if names and spec.name not in names:
            continue
        kept = [model for model in spec.models if not models or model in models]
        chosen.append(replace(spec, models=tuple(kept)))
    return tuple(chosen)


def _build(kind: type[Any], given: Fields) -> None:
    """Build a model or calibrator, and what trains it, to check their settings."""
    of_training = {name: value for name, value in given.values.items() if name in _OF_TRAINING}
    if issubclass(kind, Model):
        replace(given, values=of_training).build(Training)
        own = {name: value for name, value in given.values.items() if name not in of_training}
        given = replace(given, values=own)
    given.build(kind)


def _require_names(where: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            rule = f"be among {', '.join(known)}"
            raise DataError(where, rule, repr(name), "Name one of these.")
