"""Every member of every kind is in the registry, and every registered member is under the laws."""

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import calibrank
import calibrank.curves
import calibrank.data
import calibrank.export
import calibrank.metrics
import calibrank.propensity
from calibrank import registry
from calibrank.data.splits import Split
from tests import members

# Chooses one of the calibrators and needs folds of rows: `registry.SELECTORS` has it instead, so
# that what loops over all calibrators does not fit the chosen one twice.
SELECTS_A_CALIBRATOR = {"Auto"}
# Reads any table; `registry.load_dataset` uses it for every name.
NOT_A_DATASET = {"load_table"}


def exported_classes(package: ModuleType) -> list[type]:
    exported = [getattr(package, name) for name in package.__all__]
    return [member for member in exported if inspect.isclass(member)]


def concrete_subclasses(package: ModuleType, base: type) -> set[type]:
    """The exported classes that derive from a base and can be instantiated."""
    found = set()
    for member in exported_classes(package):
        if issubclass(member, base) and not inspect.isabstract(member):
            found.add(member)
    return found


def modules_of(package: ModuleType) -> dict[str, ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {name: import_module(f"{package.__name__}.{name}") for name in names}


def own_functions(module: ModuleType) -> dict[str, Any]:
    """The functions that a module defines itself."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return {name: value for name, value in functions if value.__module__ == module.__name__}


def classes_of(instances: Any) -> set[type]:
    return {type(instance) for instance in instances}


def test_every_calibrator_is_registered() -> None:
    exported = concrete_subclasses(calibrank.curves, calibrank.Calibrator)
    own = {kind for kind in exported if kind.__name__ not in SELECTS_A_CALIBRATOR}
    assert classes_of(registry.CALIBRATORS.values()) == own
    assert classes_of(registry.SELECTORS.values()) == exported - own


def test_every_metric_is_registered() -> None:
    exported = concrete_subclasses(calibrank.metrics, calibrank.Metric)
    assert set(registry.METRIC_KINDS.values()) == exported


def test_every_propensity_is_registered() -> None:
    estimators = set()
    for kind in exported_classes(calibrank.propensity):
        is_protocol = getattr(kind, "_is_protocol", False)
        if hasattr(kind, "fit") and not is_protocol:
            estimators.add(kind)
    assert set(registry.PROPENSITIES.values()) == estimators


def test_every_kind_of_evidence_is_registered() -> None:
    constructors = set()
    for function in own_functions(calibrank.evidence).values():
        is_public = function.__name__ in calibrank.__all__
        if is_public and get_type_hints(function)["return"] is calibrank.Evidence:
            constructors.add(function)
    # An outcome model has no text, so this one is for Python alone.
    assert set(registry.EVIDENCE.values()) == constructors - {calibrank.doubly_robust}


def test_every_split_is_registered() -> None:
    assert set(registry.SPLITS.values()) == concrete_subclasses(calibrank.data, Split)


def test_every_dataset_loader_is_registered() -> None:
    pytest.importorskip("pyarrow")
    loaders = set()
    for module in modules_of(calibrank.data).values():
        for name, function in own_functions(module).items():
            if name.startswith("load_") and name not in NOT_A_DATASET:
                loaders.add(function)
    assert set(registry.DATASETS.values()) == loaders


def test_every_exporter_is_registered() -> None:
    names = [name for name in calibrank.export.__all__ if name.startswith("to_")]
    exporters = {getattr(calibrank.export, name) for name in names}
    assert set(registry.EXPORTERS.values()) == exporters


def test_every_model_is_registered() -> None:
    models = import_module("calibrank.models")
    exported = concrete_subclasses(models, models.Model)
    assert classes_of(registry.MODELS.values()) == exported


def test_names_are_those_of_the_members() -> None:
    for members_by_name in (registry.CALIBRATORS, registry.METRICS, registry.MODELS):
        assert all(name == member.name for name, member in members_by_name.items())
    assert all(name == member.__name__ for name, member in registry.EVIDENCE.items())
    for name, kind in registry.PROPENSITIES.items():
        assert name.replace("_", "") == kind.__name__.lower()


def test_every_registered_member_is_checked_by_the_laws() -> None:
    assert classes_of(members.CALIBRATORS) >= classes_of(registry.CALIBRATORS.values())
    assert classes_of(members.METRICS) >= classes_of(registry.METRICS.values())
    assert classes_of(members.PROPENSITIES) >= set(registry.PROPENSITIES.values())
