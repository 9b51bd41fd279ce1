"""Maps as an ONNX graph of standard operators."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrank.errors import MissingExtraError
from calibrank.maps import CalibrationMap, LogisticMap
from calibrank.maps.targets.target import (
    Dtype,
    ceilings,
    in_two,
    log_odds_by_place,
    probability,
    require_dtype,
)

if TYPE_CHECKING:
    import onnx

_OPSET, _IR_VERSION = 17, 8  # of 2022: what serving engines have long had


def to_onnx(
    fitted: CalibrationMap, dtype: str = "float32", shape: Sequence[str | int] = ("rows",)
) -> "onnx.ModelProto":
    """A model from `score` to `probability`, both of a dtype and a shape whose named sizes are free.

    A score that is NaN gives NaN. For a head that gives a column, say shape=("rows", 1).

    >>> from calibrank import Platt
    >>> model = to_onnx(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> [value.name for value in (*model.graph.input, *model.graph.output)]
    ['score', 'probability']
    """
    try:
        from onnx import checker, helper  # noqa: PLC0415  (slow to load, and only this function needs it)
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx") from error
    kind = require_dtype(fitted, dtype)
    target = _Onnx(kind)
    result = probability(fitted, _Value("score", target), target, "onnx")
    target.add("Identity", result.name, output="probability")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    ends = [
        helper.make_tensor_value_info(name, code, list(shape)) for name in ("score", "probability")
    ]
    graph = helper.make_graph(target.nodes, "calibrank", ends[:1], ends[1:], target.constants)
    graph.doc_string = f"{fitted.method} map by calibrank"
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(
        graph, producer_name="calibrank", opset_imports=[opset], ir_version=_IR_VERSION
    )
    checker.check_model(model, full_check=True)
    return model


class _Value:
    """The name of a value in the graph, with the arithmetic that adds nodes."""

    def __init__(self, name: str, graph: "_Onnx") -> None:
        self.name = name
        self._graph = graph

    def __add__(self, other: Any) -> "_Value":
        return self._graph.add("Add", self, other)

    def __radd__(self, other: Any) -> "_Value":
        return self._graph.add("Add", other, self)

    def __sub__(self, other: Any) -> "_Value":
        return self._graph.add("Sub", self, other)

    def __rsub__(self, other: Any) -> "_Value":
        return self._graph.add("Sub", other, self)

    def __mul__(self, other: Any) -> "_Value":
        return self._graph.add("Mul", self, other)

    def __rmul__(self, other: Any) -> "_Value":
        return self._graph.add("Mul", other, self)

    def __truediv__(self, other: Any) -> "_Value":
        return self._graph.add("Div", self, other)

    def __rtruediv__(self, other: Any) -> "_Value":
        return self._graph.add("Div", other, self)


class _Onnx:
    """`Target` for a graph under construction."""

    def __init__(self, dtype: Dtype) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._dtype = dtype

    def add(self, operator: str, *inputs: Any, output: str = "") -> _Value:
        """A node; numbers among its inputs become constants."""
        from onnx import helper  # noqa: PLC0415  (loaded by `to_onnx`)

        name = output or f"{operator.lower()}_{len(self.nodes)}"
        names = [
            value.name if isinstance(value, _Value) else self._constant(value) for value in inputs
        ]
        self.nodes.append(helper.make_node(operator, names, [name], name=f"node_{name}"))
        return _Value(name, self)

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper  # noqa: PLC0415  (loaded by `to_onnx`)

        if isinstance(value, str):
            return value
        name = f"constant_{len(self.constants)}"
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype=self._dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def place(self, score: _Value, low: float, width: float) -> _Value:
        near, rest = in_two(low) if self._dtype == "float32" else (low, 0.0)
        moved = score - near if near else score
        moved = moved - rest if rest else moved
        return moved if width == 1 else moved / width

    def log_odds(self, fitted: LogisticMap, score: _Value) -> _Value:
        result: _Value = log_odds_by_place(fitted, score, self)
        return result

    def log(self, x: _Value) -> _Value:
        return self.add("Log", x)

    def softplus(self, x: _Value) -> _Value:
        small = self.add("Exp", self.add("Neg", self.add("Abs", x)))
        more = small + 1.0
        # log(1 + small), exact where 1 + small rounds: the error of `more` cancels (Kahan).
        rest = self.add(
            "Where", self.add("Equal", more, 1.0), small, self.log(more) * small / (more - 1.0)
        )
        return self.maximum(x, 0.0) + rest

    def sigmoid(self, x: _Value) -> _Value:
        # The operator Sigmoid is an approximation in some engines, which ends at 1e-8; an infinite Exp gives 0.
        return 1.0 / (self.add("Exp", self.add("Neg", x)) + 1.0)

    def minimum(self, x: _Value, bound: float) -> _Value:
        return self.add("Min", x, bound)

    def maximum(self, x: _Value, bound: float) -> _Value:
        return self.add("Max", x, bound)

    def steps(self, score: _Value, edges: Sequence[float], values: Sequence[float]) -> _Value:
        """A binary search, each halving a gather: memory for a few numbers a score, however many the steps."""
        halvings = len(edges).bit_length()
        table = np.full(2**halvings - 1, np.inf, dtype=self._dtype)
        table[: len(edges)] = ceilings(edges, self._dtype)
        padded = np.pad(
            np.array(values, dtype=self._dtype), (0, 2**halvings - len(values)), mode="edge"
        )
        found: Any = np.array(0, dtype=np.int64)
        for halving in reversed(range(halvings)):
            further = self.add("Add", found, np.array(2**halving, dtype=np.int64))
            edge = self.add("Gather", table, self.add("Sub", further, np.array(1, dtype=np.int64)))
            found = self.add("Where", self.add("GreaterOrEqual", score, edge), further, found)
        return self.add("Gather", padded, found) + score * 0.0  # NaN stays NaN
