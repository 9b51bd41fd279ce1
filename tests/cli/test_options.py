"""Options, help and exit codes of the whole command line."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import calibrank as cr
from calibrank.cli import options as declared
from calibrank.cli.app import COMMANDS, function_of
from calibrank.cli.parse import Given, as_typed, whole
from calibrank.export import DIALECTS
from calibrank.monitor.check import LONGEST_WINDOW, WINDOW
from calibrank.registry import CALIBRATORS, DATASETS, EXPORTERS, MODELS, SELECTORS, SPLITS
from tests.cli.conftest import Call
from tests.cli.running import one_line, run


def test_version_prints_one_line() -> None:
    assert run("--version") == (0, f"calibrank {cr.__version__}\n", "")


def test_without_arguments_help_lists_every_command() -> None:
    code, text, _ = run("--help")
    assert code == 0
    for command in COMMANDS[""].members:
        assert f"  {command.name} " in text
        assert command.summary in one_line(text)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name])
def test_help_of_a_command_has_an_example_and_few_options(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = call(*command.split(), "--help")
    assert code == 0
    assert f"Usage: calibrank {command}" in text
    assert f"Example: calibrank {command}" in one_line(text)
    options = set(re.findall(r"^ +(--[a-z-]+)", text, flags=re.MULTILINE)) - {"--help"}
    assert len(options) <= 15, sorted(options)
    assert max(map(len, text.splitlines())) <= 80
    # Two screens of 50 lines.
    assert text.count("\n") <= 100
    # Names of options and what they do are apart, and every value has a name of its own.
    for option in COMMANDS[command].options:
        assert re.search(rf"^  {re.escape(option.label)}(  |$)", text, flags=re.MULTILINE)
        assert "TEXT" not in option.label


@pytest.mark.parametrize("command", [name for name in COMMANDS if not COMMANDS[name].members])
def test_a_command_is_run_by_the_function_of_its_name(command: str) -> None:
    function = function_of(COMMANDS[command])
    assert [*inspect.signature(function).parameters] == ["given"]
    assert inspect.getdoc(function) == COMMANDS[command].summary


@pytest.mark.parametrize("command", [name for name in COMMANDS if not COMMANDS[name].members])
def test_a_command_asks_for_its_options_alone(command: str) -> None:
    """What is given has no types: a name that no option sets would fail only when it is asked."""
    function = function_of(COMMANDS[command])
    asked = set(re.findall(r"\bgiven\.(\w+)", inspect.getsource(function)))
    methods = {name for name in vars(Given) if callable(getattr(Given, name, None))}
    assert asked - methods <= {each.name for each in COMMANDS[command].options}


@pytest.mark.parametrize("command", COMMANDS)
def test_rules_are_about_options_of_the_command(command: str) -> None:
    names = {flag for option in COMMANDS[command].options for flag in option.names}
    flags = {flag.strip("[]") for flag in names}
    for rule in COMMANDS[command].rules:
        assert {*rule.flags.split(), *rule.needs.split()} <= flags


def test_what_help_says_about_members_is_what_the_registry_has() -> None:
    assert [*declared.METHODS] == [*CALIBRATORS]
    assert [*declared.MODELS] == [*MODELS]
    assert [*declared.SPLITS] == [*SPLITS]
    assert [*declared.DATASETS] == [*DATASETS]
    assert [*declared.EXPORTERS] == [*EXPORTERS]
    assert [*declared.DIALECTS] == [*DIALECTS]
    (window,) = [each for each in COMMANDS["monitor"].options if each.name == "window"]
    assert window.kind == whole(1, LONGEST_WINDOW)
    assert window.default == WINDOW


def test_public_names_are_those_of_their_packages() -> None:
    """They are imported when first used; type checkers see the imports."""
    tree = ast.parse(Path(cr.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = []
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for each in node.names:
            names.append(each.name)
            assert getattr(cr, each.name) is getattr(import_module(node.module), each.name)
    assert sorted(names) == sorted(cr.__all__)


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["fit", "--nonsense"]])
def test_help_and_wrong_usage_load_neither_numpy_nor_rich(arguments: list[str]) -> None:
    program = (
        f"import sys; sys.argv = ['calibrank', *{arguments!r}]\n"
        "from calibrank.cli import app\n"
        "try: app.main()\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'pyarrow', 'rich', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--version"], 0, f"calibrank {cr.__version__}"),
        (["--help"], 0, "anchor     Move a map to labels"),
        (["fit", "--help"], 0, "Usage: calibrank fit"),
        ([], 0, "Usage: calibrank"),
        (["fit", "t.parquet"], 5, ""),
    ],
)
def test_the_core_alone_says_what_to_install(arguments: list[str], code: int, text: str) -> None:
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'rich': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent)\n"
        "import importlib.util as util\n"
        "known = util.find_spec\n"
        "util.find_spec = lambda name, *_: None if name == 'rich' else known(name)\n"
        f"sys.argv = ['calibrank', *{arguments!r}]\n"
        "from calibrank.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stderr
    assert text in ended.stdout
    if code:
        assert "pip install" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "option", "members"),
    [
        (["fit", "log.parquet"], "--method", [*SELECTORS, *CALIBRATORS]),
        (["train", "log.parquet", "-o", "model"], "--model", MODELS),
        (["train", "log.parquet", "-o", "model"], "--split", SPLITS),
        (["export", "map.json"], "--to", EXPORTERS),
        (["export", "map.json", "--to", "sql"], "--dialect", tuple(DIALECTS)),
    ],
)
def test_a_wrong_choice_lists_the_members_of_the_registry(
    call: Call, arguments: list[str], option: str, members: list[str]
) -> None:
    code, _, error = call(*arguments, option, "magic")
    assert code == 2
    names = ", ".join(as_typed(member) for member in members)
    expected = f"{option} must be one of {names}, got 'magic'."
    assert expected in one_line(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--item", "item_id", "--propensity", "w"],
            "--propensity and --item must not both be given",
        ),
        (
            ["--item", "item_id", "--negatives-kept", "0"],
            "--negatives-kept must lie in (0, 1], got 0.0",
        ),
        (["--log", "policy"], "--log policy must have the logged probabilities"),
        ([], "a log of interactions must have propensities"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(
    call: Call, folder: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    code, _, error = call("fit", folder / "log.parquet", *options, "-o", tmp_path / "map.json")
    assert code == 2
    assert message in error
    assert not (tmp_path / "map.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "nowhere.parquet"], 3, "nowhere.parquet must be a table"),
        (["fit", "log.txt", "--log", "impressions"], 3, "log.txt must end in .parquet"),
        (
            ["fit", "log.parquet", "--score", "x", "--log", "impressions"],
            3,
            "must have a score column (x), got 'user_id'",
        ),
        (["fit", "log.parquet", "--item", "x"], 3, "must have an item column (x)"),
        (
            ["apply", "nomap.json", "log.parquet", "-o", "o.parquet"],
            3,
            "nomap.json must be a saved map, got no such file",
        ),
        (["inspect", "log.csv"], 3, "log.csv must be JSON"),
        (["fit", "separable.csv", "--log", "impressions"], 4, "no finite best fit exists"),
        (
            ["fit", "broken.parquet", "--log", "impressions"],
            3,
            "broken.parquet must be readable as parquet",
        ),
        (["report"], 2, "TABLE must be given, got none. See calibrank report --help."),
        (
            ["report", "log.parquet", "--map", "map.json", "--segment", "x"],
            3,
            "must have the segment column 'x', got 'user_id'",
        ),
    ],
)
def test_an_expected_error_is_one_line_with_its_own_exit_code(
    call: Call,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    Path("log.txt").write_text("x")
    Path("broken.parquet").write_bytes(b"PAR1 nonsense")
    Path("separable.csv").write_text("score,label\n1,0\n2,0\n3,1\n4,1\n")
    found, _, error = call(*arguments)
    assert found == code
    assert error.startswith("calibrank: ")
    assert error.count("\n") == 1
    assert message in error


def test_outputs_never_replace_an_input(call: Call, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "log.parquet"
    table.write_bytes((folder / "log.parquet").read_bytes())
    before = table.read_bytes()
    map_file = tmp_path / "map.json"
    fit = ["fit", table, "--item", "item_id"]
    code, _, error = call(*fit, "-o", table)
    assert code == 3
    assert f"{table} must not be the input {table}" in error
    code, _, error = call(*fit, "-o", tmp_path)
    assert code == 3
    assert f"{tmp_path} must be a file to write, got a folder" in error
    code, _, error = call(*fit, "-o", table / "map.json")
    assert code == 3
    assert "must be in a folder, got" in error
    assert call(*fit, "-o", map_file)[0] == 0
    code, _, error = call("export", map_file, "--to", "json", "-o", map_file)
    assert code == 3
    assert f"{map_file} must not be the input" in error
    code, _, error = call("report", table, "--map", map_file, "-o", table)
    assert code == 3
    assert f"{table} must not be the input" in error
    assert table.read_bytes() == before
