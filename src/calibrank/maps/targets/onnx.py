"""Maps as an ONNX graph of standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrank._internal.arguments import instance, label, whole
from calibrank._internal.rules import ColumnRule
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.errors import MissingExtraError
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.target import Dtype, Expression, Target, Unary, ceilings, require_dtype

if TYPE_CHECKING:
    import onnx

# Versions of 2022, which serving engines have supported for years.
_OPSET = 17
_IR_VERSION = 8

_OPERATORS = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div"}


def to_onnx(
    fitted: CalibrationMap, dtype: str = "float32", shape: Sequence[str | int] = ("rows",)
) -> onnx.ModelProto:
    """A model from `score` to `probability`, both of the given dtype and shape.

    Named dimensions are dynamic. A score that `predict` refuses (NaN, or beyond 1e30 as a padding
    value is) gives NaN. After a layer that returns a column, use shape=("rows", 1). The graph of a
    map with terms has one more input per term, of its column's name (`fitted.input_names()`): a
    number, or the number of a level (`fitted.level_index`) as int64.

    >>> from calibrank import Platt
    >>> model = to_onnx(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> [value.name for value in (*model.graph.input, *model.graph.output)]
    ['score', 'probability']
    """
    require_map(fitted)
    instance("shape", shape, (tuple, list), 'Use e.g. ("rows",) or ("rows", 1).')
    dimensions = [
        label("shape", size) if isinstance(size, str) else whole("shape", size, 1) for size in shape
    ]
    package = _load_onnx()
    checked = require_dtype(fitted, dtype)
    names = fitted.input_names()
    target = OnnxTarget(package, checked, names)
    given = [Value(name, target) for name in names]
    probability = fitted.where_valid(target, Value("score", target), given)
    target.add("Identity", probability.name, output="probability")
    number = package.helper.np_dtype_to_tensor_dtype(np.dtype(checked))
    kinds = dict.fromkeys(("score", *names, "probability"), number)
    for name, term in zip(names, fitted.terms, strict=True):
        if term.role == "level":
            # Numbers of rows of a table.
            kinds[name] = package.TensorProto.INT64
    *inputs, output = [
        package.helper.make_tensor_value_info(name, kind, dimensions)
        for name, kind in kinds.items()
    ]
    graph = package.helper.make_graph(target.nodes, "calibrank", inputs, [output], target.constants)
    graph.doc_string = f"{fitted.method} map by calibrank"
    model = package.helper.make_model(
        graph,
        producer_name="calibrank",
        opset_imports=[package.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    package.checker.check_model(model, full_check=True)
    return model


def _load_onnx() -> ModuleType:
    try:
        import onnx  # noqa: PLC0415  (slow to load, and only this exporter needs it)
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx") from error
    return onnx


class Value(Expression):
    """The name of a value in the graph, with arithmetic that adds nodes."""

    def __init__(self, name: str, graph: OnnxTarget) -> None:
        self.name = name
        self._graph = graph

    def binary(self, left: Any, operator: str, right: Any) -> Value:
        return self._graph.add(_OPERATORS[operator], left, right)


class OnnxTarget(Target):
    """The nodes and constants of a graph under construction."""

    normalizes: ClassVar[bool] = True

    def __init__(self, package: ModuleType, dtype: Dtype, inputs: Sequence[str] = ()) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._onnx = package
        self.dtype = dtype
        # No input, which is named as a column, starts so.
        self._prefix = "__"
        while any(name.startswith(self._prefix) for name in inputs):
            self._prefix += "_"

    def add(self, operator: str, *inputs: Any, output: str = "") -> Value:
        """Add a node; numbers among its inputs become constants."""
        name = output or f"{self._prefix}{operator.lower()}_{len(self.nodes)}"
        names = [self._input(value) for value in inputs]
        node = self._onnx.helper.make_node(operator, names, [name], name=f"node_{name}")
        self.nodes.append(node)
        return Value(name, self)

    def _input(self, value: Any) -> str:
        if isinstance(value, Value):
            return value.name
        if isinstance(value, str):
            return value
        name = f"{self._prefix}constant_{len(self.constants)}"
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype=self.dtype)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def log(self, x: Value) -> Value:
        return self.add("Log", x)

    def softplus(self, x: Value) -> Value:
        small = self.add("Exp", self.add("Neg", self.add("Abs", x)))
        rounded = small + 1.0
        # log(1 + small) without log1p: the rounding error of 1 + small cancels in the quotient
        # (Kahan).
        is_lost = self.add("Equal", rounded, 1.0)
        exact = self.log(rounded) * small / (rounded - 1.0)
        return self.maximum(x, 0.0) + self.add("Where", is_lost, small, exact)

    def sigmoid(self, x: Value) -> Value:
        # Some engines approximate the operator Sigmoid and return nothing below 1e-8.
        # Exp may overflow to infinity here, which gives the right probability of 0.
        return 1.0 / (self.add("Exp", self.add("Neg", x)) + 1.0)

    def minimum(self, x: Value, bound: float) -> Value:
        return self.add("Min", x, bound)

    def maximum(self, x: Value, bound: float) -> Value:
        return self.add("Max", x, bound)

    def where_valid(self, score: Value, formula: Unary, conditions: Sequence[Value] = ()) -> Value:
        # No comparison with NaN holds.
        valid = self.add("LessOrEqual", self.add("Abs", score), LARGEST_SCORE)
        for condition in conditions:
            valid = self.add("And", valid, condition)
        return self.add("Where", valid, formula(score), np.nan)

    def is_valid(self, x: Value, rule: ColumnRule) -> Value:
        above = self.add("GreaterOrEqual", x, rule.low)
        return self.add("And", above, self.add("LessOrEqual", x, rule.high))

    def is_level(self, x: Value, count: int) -> Value:
        above = self.add("GreaterOrEqual", x, _integer(0))
        return self.add("And", above, self.add("LessOrEqual", x, _integer(count)))

    def by_level(self, x: Value, keys: Sequence[Key], values: Floats) -> Value:
        # A number outside the table is made invalid by `is_level`; here it must not be an error.
        inside = self.add("Max", self.add("Min", x, _integer(len(values) - 1)), _integer(0))
        return self.add("Gather", np.array(values, dtype=self.dtype), inside)

    def steps(self, score: Value, edges: Sequence[float], values: Sequence[float]) -> Value:
        """A binary search with one Gather per halving, which needs little memory per score."""
        halvings = len(edges).bit_length()
        # Both tables are padded to a full binary tree: with edges that no score reaches.
        padded_edges = np.full(2**halvings - 1, np.inf, dtype=self.dtype)
        padded_edges[: len(edges)] = ceilings(edges, self.dtype)
        padding = 2**halvings - len(values)
        padded_values = np.pad(np.array(values, dtype=self.dtype), (0, padding), mode="edge")
        found: Any = _integer(0)
        for halving in reversed(range(halvings)):
            candidate = self.add("Add", found, _integer(2**halving))
            edge = self.add("Gather", padded_edges, self.add("Sub", candidate, _integer(1)))
            is_reached = self.add("GreaterOrEqual", score, edge)
            found = self.add("Where", is_reached, candidate, found)
        # Adding 0 times the score keeps NaN, and gives the result the shape of the scores.
        return self.add("Gather", padded_values, found) + score * 0.0


def _integer(value: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(value, dtype=np.int64)
