"""Where numba keeps compiled loops."""

from typing import Any

import pytest

from calibrank.models.engines import _kernels


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
@pytest.mark.parametrize("folder", ["", ".", "cache"])
def test_nothing_is_kept_in_the_working_folder(
    name: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, folder)
    assert not _kernels._can_cache()


def test_an_installation_without_a_writable_folder_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _kernels._can_cache()

    def without_folder(*, cache: bool) -> Any:
        def decorate(_: Any) -> Any:
            raise RuntimeError("cannot cache function: no locator available")

        assert cache
        return decorate

    monkeypatch.setattr(_kernels, "njit", without_folder)
    assert not _kernels._can_cache()
