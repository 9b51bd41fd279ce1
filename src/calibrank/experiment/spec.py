"""Experiment specs: TOML files whose every key and name is checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import calibrank
from calibrank.curves import Calibrator
from calibrank.errors import DataError
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS, EVIDENCE, MODELS, PROPENSITIES, SPLITS

# More negatives or epochs than this are a mistake, and would exhaust memory or patience.
_LARGEST_COUNT = 1_000_000

_KNOWN_NAMES: dict[str, Collection[str]] = {
    "splits": SPLITS,
    "models": MODELS,
    "methods": CALIBRATORS,
    "losses": EVIDENCE,
    "estimators": PROPENSITIES,
}

Check: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Spec:
    """One experimental protocol.

    Parameters
    ----------
    negatives : negatives per held-out positive, by dataset, with "default" for all others; one
        number, or one by loss. 0 means as many as represent all unobserved pairs.
    epochs : epochs to train for, by dataset and model; where none are given, validation decides.
    settings : model settings that differ from the defaults, and the learning rate, by dataset and
        model.
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
    negatives: Mapping[str, int | Mapping[str, int]]
    why_negatives: str
    epochs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    method_settings: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    sweep: tuple[int, ...] = ()
    estimators: tuple[str, ...] = ()
    power: float = 0.5
    clip: float = 0.1

    @classmethod
    def load(cls, path: Path) -> Spec:
        """Read a spec; an unknown key, an unknown name or a missing key is an error."""
        spec = _parse(path)
        for key, known in _KNOWN_NAMES.items():
            _require_names(f"{path}, {key}", getattr(spec, key), known)
        # Settings of a model that the spec does not train are a mistake.
        for key in ("epochs", "settings"):
            for by_model in getattr(spec, key).values():
                _require_names(f"{path}, {key}", by_model, spec.models)
        for by_method in spec.method_settings.values():
            _require_names(f"{path}, method_settings", by_method, spec.methods)
            for method, settings in by_method.items():
                _require_settings(path, method, settings)
        for key in ("splits", "models", "methods", "losses"):
            if not getattr(spec, key):
                raise DataError(f"{path}, {key}", "name at least one", "none")
        Popularity(spec.power, spec.clip)  # checks both
        if "default" not in spec.negatives:
            raise DataError(f"{path}, negatives", "have a default", dict(spec.negatives))
        for dataset in spec.negatives:
            _require_counts(path, dataset, spec)
        return spec

    def negatives_for(self, dataset: str, loss: str) -> int:
        """Negatives per held-out positive; for a loss not in the spec, the largest of all."""
        count = self.negatives.get(dataset, self.negatives["default"])
        return count if isinstance(count, int) else count.get(loss, max(count.values()))

    def calibrator_for(self, dataset: str, method: str) -> Calibrator:
        """A calibrator with the settings for a dataset."""
        return _configured(method, self.method_settings.get(dataset, {}).get(method, {}))

    def epochs_for(self, dataset: str, model: str) -> int:
        """Epochs to train for; 0 where validation decides."""
        return self.epochs.get(dataset, {}).get(model, 0)

    def settings_for(self, dataset: str, model: str) -> tuple[tuple[str, float], ...]:
        """The model's settings that differ from its defaults."""
        return tuple(sorted(self.settings.get(dataset, {}).get(model, {}).items()))


def find_folder(name: str) -> Path:
    """The folder of an experiment: a path, or a name under `reproduce/`.

    `reproduce/` is looked for in the current folder and in calibrank's own repository.
    """
    repository = Path(calibrank.__file__).parents[2]
    for parent in (Path(), Path("reproduce"), repository / "reproduce"):
        if any((parent / name).glob("*.toml")):
            return parent / name
    raise DataError(
        name,
        "be a folder of specs (*.toml)",
        "no such folder",
        "Run it from calibrank's repository.",
    )


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


def _parse(path: Path) -> Spec:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(path, f"be TOML: {error}") from None
    known = {each.name for each in fields(Spec)} - {"name"}
    for key in values:
        if key not in known:
            raise DataError(path, f"hold only {', '.join(sorted(known))}", f"key {key!r}")
    # Specs are hashed and compared, so lists become tuples.
    arguments: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    _require_types(path, arguments)
    try:
        return Spec(name=path.stem, **arguments)
    except TypeError as error:
        raise DataError(path, f"be a complete spec: {error}") from None


def _configured(method: str, settings: Mapping[str, Any]) -> Calibrator:
    # The registry holds each calibrator with its defaults.
    kind: Any = type(CALIBRATORS[method])
    configured: Calibrator = kind(**settings)
    return configured


def _require_settings(path: Path, method: str, settings: Mapping[str, Any]) -> None:
    try:
        _configured(method, settings)
    except TypeError:
        raise DataError(
            f"{path}, method_settings", f"be those of {method}", ", ".join(settings)
        ) from None


def _require_counts(path: Path, dataset: str, spec: Spec) -> None:
    """Numbers of negatives must be whole and not negative, one for every loss of the spec."""
    counts = spec.negatives[dataset]
    if isinstance(counts, Mapping):
        _require_names(f"{path}, negatives of {dataset}", counts, spec.losses)
        missing = [loss for loss in spec.losses if loss not in counts]
        if missing:
            raise DataError(
                f"{path}, negatives of {dataset}",
                "be given for every loss",
                f"none for {', '.join(missing)}",
            )


def _require_types(path: Path, arguments: Mapping[str, Any]) -> None:
    """Check the type of every value, however deeply it is nested."""
    for key, value in arguments.items():
        is_valid, statement = _TYPES[key]
        if not is_valid(value):
            raise DataError(f"{path}, {key}", f"be {statement}", f"{value!r}", "Correct the spec.")


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(is_valid: Check) -> Check:
    return lambda value: isinstance(value, tuple) and all(map(is_valid, value))


def _table_of(is_valid: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(is_valid, value.values()))


_COUNT = "whole numbers from 0 to 1,000,000"

_TYPES: dict[str, tuple[Check, str]] = {
    **dict.fromkeys(("title", "why", "why_negatives"), (_is_text, "text")),
    **dict.fromkeys(_KNOWN_NAMES, (_list_of(_is_text), "a list of names")),
    **dict.fromkeys(("power", "clip"), (_is_number, "a number")),
    "sweep": (_list_of(_is_count), f"a list of {_COUNT}"),
    "negatives": (
        _table_of(lambda value: _is_count(value) or _table_of(_is_count)(value)),
        f"a table of {_COUNT} by dataset, or by dataset and loss",
    ),
    "method_settings": (
        _table_of(_table_of(lambda value: isinstance(value, dict))),
        "a table of settings by dataset and method",
    ),
    "epochs": (_table_of(_table_of(_is_count)), f"a table of {_COUNT} by dataset and model"),
    "settings": (
        _table_of(_table_of(_table_of(_is_number))),
        "a table of numbers by dataset, model and setting",
    ),
}
"""What the value of each key must be, and the words for it."""


def _require_names(where: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            rule = f"be among {', '.join(known)}"
            raise DataError(where, rule, repr(name), "Name one of these.")
