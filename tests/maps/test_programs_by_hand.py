"""Maps as the C loops read them, read by Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from calibrank._internal.rules import LARGEST_SCORE
from calibrank.maps._program import Kind, of_log_odds, pack, pack_lines, pack_steps
from calibrank.maps.basis import Linear
from tests.maps.samples import logistic_map


class Packed(NamedTuple):
    """A map of edges as `native_maps.h` describes it, read by Python."""

    origin: float
    scale: float
    last: int
    step: int
    bounds: list[float]
    table: np.ndarray
    first_edges: list[int]

    @classmethod
    def of(cls, program: bytes, kind: Kind) -> Packed:
        header = np.frombuffer(program[:64])
        assert (header[0], header[1]) == (kind, LARGEST_SCORE)
        bounds, edges = int(header[6]), int(header[7])
        numbers = np.frombuffer(program[64 : 64 + 8 * (bounds + 4 * edges)])
        first = np.frombuffer(program[64 + numbers.nbytes :], np.int32)
        place, last, step = header[2:4].tolist(), int(header[4]), int(header[5])
        assert len(first) == last + 1
        table = numbers[bounds:].reshape(edges, 4)
        return cls(*place, last, step, numbers[:bounds].tolist(), table, first.tolist())

    def bucket(self, score: float) -> int:
        return int(min(max((score - self.origin) * self.scale, 0), self.last))

    def value(self, score: float) -> float:
        """As the loops compute it: the columns are edges, values, and what is below and above."""
        place, step = self.first_edges[self.bucket(score)], self.step
        while step:
            if self.bounds[place + step] <= score:
                place += step
            step //= 2
        edge, value, below, above = self.table[place].tolist()
        return value + (score - edge) * (below if score < edge else above)


CASES = {
    "one": ([0.5], 256, 0),
    "equal": (np.arange(256.0).tolist(), 256, 0),
    "too many for 256": (np.arange(257.0).tolist(), 1024, 0),
    "near": ([0.0, 1 / 3000, 1.0], 4096, 0),
    "two in a bucket": ([0.0, 1e-9, 1.0], 16384, 1),
    "three in a bucket": ([0.0, 1e-9, 2e-9, 1.0], 16384, 2),
    "four in a bucket": ([0.0, 1e-9, 2e-9, 3e-9, 1.0], 16384, 2),
    "five in a bucket": ([0.0, 1e-9, 2e-9, 3e-9, 4e-9, 1.0], 16384, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_a_table_has_as_few_buckets_as_separate_its_edges(case: str) -> None:
    edges, buckets, step = CASES[case]
    values = np.arange(len(edges)) ** 2 / 9
    slopes = (0.5, *(np.diff(values) / np.diff(edges)).tolist(), 0.25)
    packed = Packed.of(pack_lines(edges, values.tolist(), slopes), Kind.LINES)
    assert (packed.last + 1, packed.step) == (buckets, step)
    assert packed.bounds[: len(edges)] == edges
    assert packed.bounds[len(edges) :] == [np.finfo(float).max] * (2 * step)
    for score in [*edges, *np.nextafter(edges, -np.inf).tolist(), -9.0, 0.3, 9.0]:
        expected = np.interp(score, edges, values)
        expected += 0.5 * min(score - edges[0], 0) + 0.25 * max(score - edges[-1], 0)
        assert packed.value(score) == pytest.approx(expected, abs=1e-12)


def test_programs_are_of_finite_numbers() -> None:
    assert pack(Kind.RESCALE, 1.0, np.inf) == b""
    assert np.frombuffer(pack(Kind.RESCALE, 1.0, 2.0)).tolist() == [5, LARGEST_SCORE, 1, 2]
    assert pack_lines([0.0, 1.0], [0.0, np.nan], (0.0, 1.0, 0.0)) == b""
    log_odds = of_log_odds(pack(Kind.LINES, 7.0))
    assert np.frombuffer(log_odds).tolist() == [Kind.LINES + 16, LARGEST_SCORE, 7]
    assert of_log_odds(pack(Kind.STEPS, 7.0)) == of_log_odds(b"") == b""
    # Without an edge, both sides of one are the same.
    constant = np.frombuffer(pack_steps((), (0.25,))[64:88]).tolist()
    assert constant == [0.0, 0.0, 0.25]


def test_a_position_in_too_narrow_a_range_has_no_program() -> None:
    assert logistic_map(Linear(), 0.0, 0.9e-250).curve.program == b""
    assert logistic_map(Linear(), 0.0, 1.1e-250).curve.program
