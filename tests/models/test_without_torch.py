"""Without torch, model settings can be made and training says what to install."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# A finder that comes first. (`sys.modules["torch"] = None` would break scipy, which looks there.)
HIDE_TORCH = """
import sys

class HideTorch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, HideTorch)
"""
INSTALL = (
    "calibrank: torch is not installed. Run: pip install 'calibrank[torch]' "
    "(in a checkout: pip install '.[torch]')"
)


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE_TORCH + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def calibrank(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("from calibrank.__main__ import main; main()", *arguments)


def test_settings_need_no_torch() -> None:
    result = run(
        "from calibrank.models import BPR, CML, LightGCN, NCF, Training, UBPR; "
        "from calibrank.registry import MODELS; "
        "print(BPR(), CML(), LightGCN(), NCF(), UBPR(), Training().epochs, list(MODELS))"
    )
    assert result.returncode == 0, result.stderr
    assert "['BPR', 'NCF', 'CML', 'UBPR', 'LightGCN']" in result.stdout


def test_training_raises_the_install_command() -> None:
    result = run(
        "from calibrank.errors import MissingExtraError\n"
        "from calibrank.tables import Interactions\n"
        "from calibrank.models import BPR, train\n"
        "try:\n"
        "    train(BPR(), Interactions([0], [0]))\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    assert result.stdout.strip() == INSTALL.removeprefix("calibrank: ")


def test_the_registry_loads_neither_torch_nor_other_heavy_packages() -> None:
    heavy = ("torch", "safetensors", "pyarrow", "scipy.sparse", "pandas")
    code = (
        "import sys, calibrank.registry; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_train_command_ends_in_one_line_and_exit_code_5(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    # Another user: one who likes everything is refused before torch is needed.
    log = pa.table({"user": [0] * 10 + [1], "item": list(range(11))})
    pq.write_table(log, tmp_path / "log.parquet")
    result = calibrank("train", tmp_path / "log.parquet", "-o", tmp_path / "model")
    assert result.returncode == 5
    assert result.stderr.splitlines() == [INSTALL]


def test_the_reproduce_command_ends_in_one_line_and_exit_code_5(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    result = calibrank("reproduce", "aaai22", "--seeds", 1, "--out", tmp_path)
    assert result.returncode == 5
    assert result.stderr.splitlines() == [INSTALL]
    assert not list(tmp_path.rglob("*.json"))  # no cell was recorded as failed
