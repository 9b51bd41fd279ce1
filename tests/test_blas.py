"""Small linear algebra runs on one thread, and nothing else does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import calibrank as cr
from calibrank._internal.blas import one_blas_thread


def libraries() -> list[Any]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


def threads() -> list[int]:
    return [library.num_threads for library in libraries()]


@pytest.fixture
def two_threads() -> list[int]:
    for library in libraries():
        library.set_num_threads(2)
    if set(threads()) != {2}:
        pytest.skip("the threads of this NumPy's BLAS cannot be set")
    return threads()


def test_threads_are_limited_and_restored_even_if_nested_or_failing(two_threads: list[int]) -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == two_threads
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert threads() == two_threads


def test_the_last_of_several_threads_restores_what_the_first_found(two_threads: list[int]) -> None:
    both = Barrier(2, timeout=60)

    @one_blas_thread()
    def work(_: int) -> None:
        both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert threads() == two_threads


def test_anchoring_uses_one_thread(two_threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.linspace(-2, 2, 40)
    fitted = cr.Platt().fit(scores, np.arange(40) % 7 < np.arange(40) / 8)
    seen: list[int] = []
    solve = np.linalg.solve

    def spy(*args: Any) -> Any:
        seen.extend(threads())
        return solve(*args)

    monkeypatch.setattr(np.linalg, "solve", spy)
    cr.anchor(fitted, scores, np.arange(40) % 2)
    assert set(seen) == {1}
    assert threads() == two_threads
