"""Fixtures for tests of exported maps."""

from collections.abc import Iterator

import pytest

from calibrank.maps import CalibrationMap
from tests import engines
from tests.maps import samples


@pytest.fixture(scope="package")
def fitted() -> CalibrationMap:
    return samples.gaussian_map()


@pytest.fixture(scope="package")
def server() -> Iterator[engines.Server]:
    with engines.short_folder() as folder, engines.postgresql_server(folder) as started:
        yield started
