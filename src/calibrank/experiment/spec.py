"""Specs: what to run, as TOML whose every key is known."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import calibrank
from calibrank.data import RandomSplit, ReleasedSplit, Split
from calibrank.errors import DataError
from calibrank.registry import CALIBRATORS

LOSSES = ("naive", "positive_ips", "ips")
SPLITS = ("released", "random")
ESTIMATORS = ("popularity", "uniform", "random", "naive_bayes", "logistic", "own")


@dataclass(frozen=True, slots=True)
class Spec:
    """One protocol.

    `negatives` a held-out positive go by dataset, "default" for the rest; 0 means as many as stand for all unobserved
    pairs. `epochs` go by dataset and model; where none are given, training stops by validation. `sweep` are other
    numbers of negatives to try, `estimators` propensities other than popularity's. `settings` of models other than
    their defaults go by dataset and model.
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

    def negatives_for(self, dataset: str) -> int:
        """Negatives a held-out positive."""
        return self.negatives.get(dataset, self.negatives["default"])

    def epochs_for(self, dataset: str, model: str) -> int:
        """Epochs to train for; 0 where validation decides."""
        return self.epochs.get(dataset, {}).get(model, 0)

    def settings_for(self, dataset: str, model: str) -> tuple[tuple[str, float], ...]:
        """A model's settings that are not its defaults."""
        return tuple(sorted(self.settings.get(dataset, {}).get(model, {}).items()))


def split_of(name: str, seed: int) -> Split:
    """A split by name; one that is random goes by the seed."""
    return ReleasedSplit() if name == "released" else RandomSplit(seed=seed)


def find_folder(name: str) -> Path:
    """The folder of a reproduction: a path, or a name under `reproduce/` here or in calibrank's own repository."""
    homes = (Path(), Path("reproduce"), Path(calibrank.__file__).parents[2] / "reproduce")
    for home in homes:
        if any((home / name).glob("*.toml")):
            return home / name
    raise DataError(
        f"{name} must be a folder of specs (*.toml), got no such folder. Run it from calibrank's repository."
    )


def load_specs(folder: Path) -> list[Spec]:
    """Every spec of a folder."""
    return [read_spec(path) for path in sorted(folder.glob("*.toml"))]


def read_spec(path: Path) -> Spec:
    """One spec; a key it does not know, or lacks, is an error."""
    try:
        values = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} must be TOML: {error}.") from None
    known = {part.name for part in fields(Spec)} - {"name"}
    for key in values:
        if key not in known:
            raise DataError(f"{path} must hold only {', '.join(sorted(known))}, got key {key!r}.")
    try:
        settings: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in values.items()
        }
        spec = Spec(name=path.stem, **settings)
    except TypeError as error:
        raise DataError(f"{path} must be a whole spec: {error}.") from None
    _require(path, "splits", spec.splits, SPLITS)
    _require(path, "methods", spec.methods, CALIBRATORS)
    _require(path, "losses", spec.losses, LOSSES)
    _require(path, "estimators", spec.estimators, ESTIMATORS)
    for key in ("epochs", "settings"):
        for models in getattr(spec, key).values():
            _require(path, key, tuple(models), spec.models)
    if "default" not in spec.negatives:
        raise DataError(f"{path}, negatives must have a default, got {dict(spec.negatives)}.")
    return spec


def choose(
    specs: Sequence[Spec], names: Sequence[str] | None, models: Sequence[str] | None
) -> tuple[Spec, ...]:
    """Only the named specs and models; all where none is named."""
    for given, known in (
        (names, [spec.name for spec in specs]),
        (models, [m for spec in specs for m in spec.models]),
    ):
        for name in given or ():
            if name not in known:
                raise DataError(
                    f"the choice must be among {', '.join(dict.fromkeys(known))}, got {name!r}."
                )
    chosen = [spec for spec in specs if not names or spec.name in names]
    return tuple(
        replace(spec, models=tuple(model for model in spec.models if not models or model in models))
        for spec in chosen
    )


def _require(path: Path, key: str, given: tuple[str, ...], known: Any) -> None:
    for name in given:
        if name not in known:
            raise DataError(f"{path}, {key} must be among {', '.join(known)}, got {name!r}.")
