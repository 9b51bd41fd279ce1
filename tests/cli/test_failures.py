"""Every failure is one line with a known exit code; no text from outside controls a terminal."""

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.cli import inspect as inspect_command
from calibrank.cli.console import SafeConsole, shown
from calibrank.cli.failures import printable
from calibrank.cli.rendering import bar
from tests.cli.conftest import Call

NASTY = ("[bold red]x[/]", "[/nope]", "\x1b[31mred\x07", "a\u202eb", ":smile:")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyError("surprise"), 70, "this is a bug, please report it with the log file"),
        (MemoryError("9 GB"), 6, "must have more memory, got: 9 GB"),
        (RuntimeError("CUDA out of memory"), 6, "must have more memory"),
        (RuntimeError("can't start new thread"), 6, "must have more memory"),
        (ImportError("x.so: failed to map segment from shared object"), 6, "more memory"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "must fit on the disk"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            3,
            "x must be a file that can be used, got: Permis",
        ),
        (cr.FitError("no fit"), 4, "no fit"),
        (UnicodeEncodeError("utf-8", "x\udcff", 1, 2, "surrogates"), 3, "must be UTF-8 text"),
    ],
)
def test_every_exception_is_one_line_with_a_known_code(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(inspect_command, "load", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found, output, errors = call("inspect", "map.json")
    assert (found, output) == (code, "")
    assert errors.startswith("calibrank: ")
    assert errors.count("\n") == 1
    assert message in errors
    if code == 70:
        log = re.search(r"log file (\S+)", errors)
        assert log is not None
        assert "KeyError: 'surprise'" in Path(log[1]).read_text()


def test_wrong_usage_is_one_line_too(call: Call) -> None:
    code, _, errors = call("fit", "t.parquet", "--\x1b[31mx")
    assert code == 2
    assert errors.count("\n") == 1
    assert "See calibrank fit --help." in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "fit", "--precision", "x"], "--precision must be a number, got 'x'. See"),
        (["search", "fit", "--top-k", "1.5"], "--top-k must be a whole number, got"),
        (
            ["monitor", "days", "--map", "m.json", "--window", "0"],
            "--window must be in the range 1<=x<=100000, got 0.",
        ),
        (["fit", "t.csv", "--method", "no"], "--method must be one of auto, "),
        (["train", "t.csv", "--device", "tpu"], "--device must be one of cpu, cuda, got 'tpu'"),
        (["anchor", "m", "--base-rate", "1e-320"], "--base-rate must lie between 0 and 1, got"),
        (["monitor", "d", "--map", "m", "-o", "d/x.html"], "outputs must lie outside the store"),
        (["fit", "t.csv", "--label", ""], "--label must not be empty, nor hold a NUL"),
        (["fit", "t.csv", "--label="], "--label must not be empty, nor hold a NUL"),
        (["fit", ""], "TABLE must not be empty, nor"),
        (["control", "t.csv", "--longest", "0"], "--longest must be in the range 1<=x"),
    ],
)
def test_wrong_values_name_their_option(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    (tmp_path / "t.csv").write_text("user,probability,label\n1,0.5,0\n2,0.6,1\n")
    monkeypatch.chdir(tmp_path)
    extra = ["--score", "probability", "--log", "impressions"] if arguments[0] == "fit" else []
    code, _, errors = call(*arguments, *extra)
    assert (code, errors.count("\n")) == (2, 1)
    assert message in errors


@pytest.mark.parametrize(
    ("command", "remedies"),
    [
        ("fit", ["--label", "--label"]),
        ("control", ["--label", "--label"]),
        ("monitor", ["--label", "--label"]),
        ("train", ["--label", "--label"]),
    ],
)
def test_remedies_name_only_options_that_the_command_has(
    call: Call, tmp_path: Path, command: str, remedies: list[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("user,item,score,probability,label\n1,1,0.5,0.5,0.5\n2,2,0.6,0.6,1\n")
    cr.Platt().fit([0.1, 0.4, 0.2, 0.9], [1.0, 0, 0, 1]).save(tmp_path / "map.json")
    arguments = {
        "fit": [table, "--log", "impressions"],
        "control": [table],
        "monitor": [
            *(tmp_path / "days", "--map", tmp_path / "map.json"),
            *("--add", table, "--date", "2026-01-01"),
        ],
        "train": [table, "-o", tmp_path / "model"],
    }[command]
    code, _, errors = call(command, *arguments)
    assert code == 3
    assert "label must be 0 or 1, got 0.5. Fix the table." in errors
    assert re.findall("--[a-z-]+", errors) == remedies


def test_remedies_of_a_fit_name_its_options(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [f"{user},{user % 2 / 2},{user % 2},0.5\n" for user in range(40)]
    table.write_text("user,score,label,propensity\n" + "".join(rows))
    _, _, errors = call("fit", table, "--propensity", "propensity", "--method", "platt")
    assert "--negatives-kept" in errors


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_in_place_of_a_map_is_no_matter_of_order(
    call: Call, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"PAR1\xff" if name.endswith("t") else b"score,label\n1,1\n")
    code, _, errors = call("inspect", tmp_path / name)
    assert code == 3
    assert "If it is a table, give a saved map in its place" in errors


def test_a_map_without_permission_is_invalid_data(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "map.json"
    file.touch()
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    code, _, errors = call("inspect", file)
    assert code == 3
    assert f"{file} must be a file that can be used, got: no permission to read it." in errors


def test_an_interrupt_has_a_code_of_its_own(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect_command, "load", fail)
    code, _, errors = call("inspect", "map.json")
    assert code == 130
    assert errors.strip() == "calibrank: interrupted."


# Raises the signal while Python locates what is imported first after the package's own handler.
_INTERRUPTED_START = """
import runpy, signal, sys

class Interrupt:
    def find_spec(name, *_):
        if name == "numpy":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
sys.orig_argv = ["python", "-m", "calibrank"]
sys.argv = [sys.argv[1], "inspect", "map.json"]
runpy.run_module("calibrank", run_name="__main__")
"""


@pytest.mark.skipif(os.name == "nt", reason="Unix signals")  # Windows has others
@pytest.mark.parametrize("program", ["-m", "/usr/bin/calibrank"])
def test_an_interrupt_while_the_command_line_starts_is_one_line(program: str) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_START, program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "calibrank: interrupted.\n")


def test_the_package_leaves_ctrl_c_to_other_programs() -> None:
    interrupted = _INTERRUPTED_START.partition("sys.orig_argv")[0]
    program = f"{interrupted}import calibrank\ncalibrank.Gaussian"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.skipif(os.name == "nt", reason="a Unix shell makes the pipe")  # not on Windows
@pytest.mark.parametrize("arguments", ["inspect map.json", "inspect map.json --json", "--help"])
def test_a_closed_pipe_is_exit_code_1_without_a_message(tmp_path: Path, arguments: str) -> None:
    cr.Platt().fit([0.1, 0.4, 0.2, 0.9], [1.0, 0, 0, 1]).save(tmp_path / "map.json")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "calibrank", *arguments.split()]
    ended = subprocess.run(
        command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("name", NASTY)
def test_text_from_outside_is_printed_as_it_is(name: str) -> None:
    output = io.StringIO()
    console = SafeConsole(file=output, emoji=False, force_terminal=True, color_system=None)
    console.print(f"[bold]Wrote[/] {shown(name)}", highlight=False)
    assert printable(name) in output.getvalue()
    assert "\x07" not in output.getvalue()
    assert "\u202e" not in output.getvalue()
    console.print(name)  # not escaped: at worst its markup is applied, but it is no error


def test_names_from_outside_are_printed_as_they_are(call: Call, tmp_path: Path) -> None:
    name = "[/x]\x1b[31m"
    table = pa.table({name: [0.1, 0.4, 0.2, 0.9] * 9, "label": [0, 1, 1, 0] * 9})
    pq.write_table(table, tmp_path / "t.parquet")
    cr.Platt().fit([0.1, 0.4, 0.2, 0.9], [1.0, 0, 0, 1]).save(tmp_path / "map.json")
    for arguments in (
        ("apply", tmp_path / "map.json", tmp_path / "t.parquet", "-o", tmp_path / "[o].parquet"),
        ("evaluate", tmp_path / "t.parquet", "--map", tmp_path / "map.json"),
        ("compare", tmp_path / "t.parquet", "--log", "impressions", "--user", name),
    ):
        _, output, errors = call(*arguments, "--score", name)
        assert "bug" not in errors
        assert "\x1b" not in output + errors
    assert "[o].parquet" in call("inspect", tmp_path / "[o].parquet")[2]


def test_output_degrades_to_ascii() -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    SafeConsole(file=output).print(bar(1, 1), highlight=False)
    output.seek(0)
    assert output.read() == 40 * "#" + "\n"


@pytest.mark.skipif(os.name == "nt", reason="a Unix shell closes the streams")  # not on Windows
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(tmp_path: Path, closed: str) -> None:
    cr.Platt().fit([0.1, 0.4, 0.2, 0.9], [1.0, 0, 0, 1]).save(tmp_path / "map.json")
    command = f'"{sys.executable}" -m calibrank export map.json --to json -o out.json {closed}'
    shell = ["sh", "-c", command]  # it closes the streams
    ended = subprocess.run(shell, cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0
    assert b"bug" not in ended.stderr
    assert (tmp_path / "out.json").exists()
