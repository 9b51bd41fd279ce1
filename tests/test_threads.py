"""Threads and workers."""

from collections.abc import Iterator
from threading import current_thread

import pytest

from calibrank import DataError
from calibrank._internal.threads import in_threads, in_workers, meanwhile, row_slices, thread_count


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALIBRANK_THREADS", raising=False)
    assert 1 <= thread_count() <= 8
    monkeypatch.setenv("CALIBRANK_THREADS", "12")
    assert thread_count() == 12


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5", ""])
def test_an_invalid_number_of_threads_is_refused(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", setting)
    with pytest.raises(
        DataError, match="CALIBRANK_THREADS must be a whole number from 1 to 1024, got"
    ):
        thread_count()


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 1_000])
def test_slices_cover_every_row_once(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", "3")
    slices = row_slices(rows)
    assert len(slices) == min(rows, 3)
    covered = [row for part in slices for row in range(rows)[part]]
    assert covered == list(range(rows))


@pytest.mark.parametrize("count", [0, 1, 4])
def test_results_of_threads_come_in_order(count: int) -> None:
    slices = [slice(number, number + 1) for number in range(count)]
    assert in_threads(lambda part: part.start, slices) == list(range(count))


@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_gets_its_tasks_in_order(workers: int) -> None:
    done: list[list[int]] = [[] for _ in range(workers)]
    in_workers(lambda worker, task: done[worker].append(task), range(100), workers)
    assert done == [list(range(worker, 100, workers)) for worker in range(workers)]


def test_the_error_of_the_first_failed_task_is_raised() -> None:
    def work(_worker: int, task: int) -> None:
        if task >= 5:
            raise ValueError(f"task {task}")

    with pytest.raises(ValueError, match="task 5"):
        in_workers(work, range(100), 2)


def test_an_error_of_the_iterable_is_raised() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise OSError("no more tasks")

    with pytest.raises(OSError, match="no more tasks"):
        in_workers(lambda _worker, _task: None, tasks(), 2)


def test_tasks_are_requested_as_workers_become_free() -> None:
    requested: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(1_000):
            requested.append(task)
            yield task

    def fail(_worker: int, _task: int) -> None:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        in_workers(fail, tasks(), 2)
    assert len(requested) < 50


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_result_is_waited_for_meanwhile(monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", threads)
    names = []

    def found() -> int:
        names.append(current_thread().name)
        return 7

    with meanwhile(found) as result:
        assert result() == 7
    assert (names == [current_thread().name]) == (threads == "1")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_error_meanwhile_is_raised_where_the_result_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", threads)
    with meanwhile(lambda: 1 // 0) as result, pytest.raises(ZeroDivisionError):
        result()
