"""Experiment specs: TOML files whose every key and name is checked."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import calibrank
from calibrank.errors import DataError
from calibrank.registry import CALIBRATORS, EVIDENCE, MODELS, PROPENSITIES, SPLITS


@dataclass(frozen=True, slots=True)
class Spec:
    """One experimental protocol.

    Parameters
    ----------
    negatives : negatives per held-out positive, by dataset, with "default" for all others; 0 means
        as many as represent all unobserved pairs.
    epochs : epochs to train for, by dataset and model; where none are given, validation decides.
    settings : model settings that differ from the defaults, by dataset and model.
    sweep : further numbers of negatives to try.
    estimators : propensity estimators to try besides popularity.
    power, clip : settings of the popularity estimator.
    """

    name: str
    title: str
    why: str
    splits: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    losses: tuple[str, ...]
    negatives: Mapping[str, int]
    why_negatives: str
    epochs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    sweep: tuple[int, ...] = ()
    estimators: tuple[str, ...] = ()
    power: float = 0.5
    clip: float = 0.1

    @classmethod
    def load(cls, path: Path) -> Spec:
        """Read a spec; an unknown key, an unknown name or a missing key is an error."""
        spec = _parse(path)
        _require_names(path, "splits", spec.splits, SPLITS)
        _require_names(path, "models", spec.models, MODELS)
        _require_names(path, "methods", spec.methods, CALIBRATORS)
        _require_names(path, "losses", spec.losses, EVIDENCE)
        _require_names(path, "estimators", spec.estimators, PROPENSITIES)
        # Settings of a model that the spec does not train are a mistake.
        for by_model in spec.epochs.values():
            _require_names(path, "epochs", by_model, spec.models)
        for settings_by_model in spec.settings.values():
            _require_names(path, "settings", settings_by_model, spec.models)
        if "default" not in spec.negatives:
            raise DataError(f"{path}, negatives must have a default, got {dict(spec.negatives)}.")
        return spec

    def negatives_for(self, dataset: str) -> int:
        """Negatives per held-out positive."""
        return self.negatives.get(dataset, self.negatives["default"])

    def epochs_for(self, dataset: str, model: str) -> int:
        """Epochs to train for; 0 where validation decides."""
        return self.epochs.get(dataset, {}).get(model, 0)

    def settings_for(
        self,
        dataset: str,
        model: str,
    ) -> tuple[tuple[str, float], ...]:
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
        f"{name} must be a folder of specs (*.toml), got no such folder. "
        "Run it from calibrank's repository."
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
    _require_choice(names, [spec.name for spec in specs])
    _require_choice(models, list(known_models))
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
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} must be TOML: {error}.") from None
    known = {each.name for each in fields(Spec)} - {"name"}
    for key in values:
        if key not in known:
            raise DataError(f"{path} must hold only {', '.join(sorted(known))}, got key {key!r}.")
    # Specs are hashed and compared, so lists become tuples.
    arguments: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    try:
        return Spec(name=path.stem, **arguments)
    except TypeError as error:
        raise DataError(f"{path} must be a complete spec: {error}.") from None


def _require_names(
    path: Path,
    key: str,
    names: Collection[str],
    known: Collection[str],
) -> None:
    for name in names:
        if name not in known:
            raise DataError(f"{path}, {key} must be among {', '.join(known)}, got {name!r}.")


def _require_choice(names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise DataError(f"the choice must be among {', '.join(known)}, got {name!r}.")
