"""Mutation testing: change one thing in the source at a time, and see that a test fails.

Mutants are sampled from the syntax trees of curves, terms, anchoring, maps, evidence, summaries and
metrics: comparisons, arithmetic, constants, conditions and removed statements.
Each runs against those tests of its package that run its line, until one fails; the tests first
run once without a change, which shows the lines that each of them runs.

    python tools/mutation.py --mutants 160 --seed 0
    python tools/mutation.py --package terms --package maps
    python tools/mutation.py --only src/calibrank/evidence.py:120:7   # one mutant again
"""

import argparse
import ast
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest
from trials import KILLED, NOT_TRIED, SURVIVED, Change, Quick, Trials, fork

ROOT = Path(__file__).parents[1]
SOURCES = ("curves", "terms", "anchoring", "maps", "evidence.py", "summary", "metrics")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Imported before the tests are, once for all mutants.
for _name in ("hypothesis", "scipy.optimize", "scipy.special", "scipy.stats"):
    import_module(_name)

# Compiled or run elsewhere: tensors need torch, and their laws are slow; starting Spark is, too.
EXCLUDED = ("_tensors.py", "__init__.py", "spark.py")
# The tests that concern a package, with the examples of its docstrings.
TESTS = {
    "curves": [
        "src/calibrank/curves",
        "tests/curves/test_formulas.py",
        "tests/golden/test_numbers.py",
        "tests/laws/test_calibrators.py",
        "tests/laws/test_scaled_weights.py",
        "tests/laws/test_optimum.py",
        "tests/curves/test_auto.py",
        "tests/curves/test_spline.py",
        "tests/reference/test_against_others.py",
        "tests/golden",
        "tests/curves",
        "tests/summary/test_resolution.py",
        "tests/test_arguments.py",
    ],
    "terms": [
        "src/calibrank/terms",
        "src/calibrank/model.py",
        "tests/golden/test_numbers.py",
        "tests/terms",
        "tests/anchoring/test_new_terms.py",
        "tests/anchoring/test_terms_of_the_start.py",
        "tests/summary/test_by_segment.py",
        "tests/summary/test_segment_cells_by_hand.py",
        "tests/test_arguments.py",
    ],
    "anchoring": ["src/calibrank/anchoring", "tests/anchoring", "tests/golden/test_numbers.py"],
    "maps": [
        "src/calibrank/maps",
        "tests/maps",
        "tests/golden",
        "tests/laws/test_saved_files.py",
        "tests/laws/test_exports.py",
    ],
    "evidence.py": [
        "src/calibrank/evidence.py",
        "tests/test_evidence.py",
        "tests/laws/test_summaries.py",
        "tests/reference",
    ],
    "summary": [
        "src/calibrank/summary",
        "tests/summary",
        "tests/golden/test_numbers.py",
        "tests/laws/test_summaries.py",
        "tests/tabular/test_aggregate.py",
        "tests/test_native.py",
    ],
    "metrics": [
        "src/calibrank/metrics",
        "tests/golden/test_numbers.py",
        "tests/metrics",
        "tests/reference/test_metric_formulas.py",
        "tests/laws/test_metrics.py",
        "tests/laws/test_scaled_weights.py",
        "tests/reference",
        "tests/test_arguments.py",
    ],
}
# The names of tests may have numbers that a mutant changes: then no test is left.
PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the lines that it replaces, and their new text."""

    path: Path
    line: int
    column: int
    before: str
    after: str
    content: str
    lines: tuple[str, ...]
    """The lines from the start of the statement on; a test that runs none of them cannot fail."""

    def __str__(self) -> str:
        place = f"{self.path.relative_to(ROOT).as_posix()}:{self.line}:{self.column}"
        return f"{place} `{self.before}` -> `{self.after}`"


def main() -> int:
    """Run a sample of mutants, print the survivors and the share that was killed."""
    options = _options()
    mutants = list(all_mutants(options.package or SOURCES))
    total = len(mutants)
    if options.only:
        chosen = [mutant for mutant in mutants if f"{mutant} ".split(" ")[0] == options.only]
    else:
        generator = random.Random(options.seed)  # noqa: S311  (a sample, not a secret)
        chosen = generator.sample(mutants, min(options.mutants, total))
    packages = sorted({_package(mutant.path) for mutant in chosen})
    jobs = max(options.jobs // len(packages), 1)
    tasks = [
        (package, [mutant for mutant in chosen if _package(mutant.path) == package], jobs)
        for package in packages
    ]
    with get_context("fork").Pool(min(options.jobs, len(packages))) as pool:
        survivors = [mutant for found in pool.starmap(survivors_of, tasks, 1) for mutant in found]
    killed = len(chosen) - len(survivors)
    print(
        f"{killed} of {len(chosen)} mutants killed, sampled from {total} with seed {options.seed}"
    )
    for mutant in survivors:
        print(f"- {mutant}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--mutants", type=int, default=160, help="how many to sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--package", choices=SOURCES, action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", help="the place of one mutant, as path:line:column")
    return parser.parse_args()


def all_mutants(names: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of these sources, in order."""
    for name in names:
        top = ROOT / "src" / "calibrank" / name
        files = [top] if top.is_file() else sorted(top.rglob("*.py"))
        for path in files:
            if path.name not in EXCLUDED:
                yield from mutants_of(path)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """The mutants of one file; annotations, docstrings and messages are left alone."""
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT / "src" / "calibrank").as_posix()
    tree = ast.parse(source)
    statements = _first_lines(tree)
    for node in _inside_functions(tree):
        for replacement in _replacements(node):
            before = ast.get_source_segment(source, node)
            after = ast.unparse(replacement)
            if before is None or before == after:
                continue
            content = _with_segment(source, node, after)
            line = node.lineno  # type: ignore[attr-defined]
            column = node.col_offset  # type: ignore[attr-defined]
            last = node.end_lineno + 1  # type: ignore[attr-defined]
            lines = tuple(f"{name}:{number}" for number in range(statements[node], last))
            yield Mutant(path, line, column, _short(before), _short(after), content, lines)


def _first_lines(tree: ast.Module) -> dict[ast.AST, int]:
    """The first line of the statement that each node is part of."""
    first = {}
    for statement in ast.walk(tree):  # outer ones come first
        if isinstance(statement, ast.stmt):
            first.update(dict.fromkeys(ast.walk(statement), statement.lineno))
    return first


def _inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of function bodies, without messages of errors, and without annotations."""
    waiting: list[ast.AST] = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)
    ]
    nested = {inner for node in waiting for inner in ast.walk(node) if inner is not node}
    bodies: list[ast.AST] = []
    for function in waiting:
        if function not in nested:
            body = function.body if isinstance(function, ast.FunctionDef) else [function.body]
            bodies.extend(body)
    while bodies:
        node = bodies.pop(0)
        if isinstance(node, ast.Raise | ast.JoinedStr):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        yield node
        if isinstance(node, ast.FunctionDef):
            bodies[:0] = node.body
        elif isinstance(node, ast.AnnAssign):
            bodies[:0] = [node.value] if node.value else []
        else:
            bodies[:0] = list(ast.iter_child_nodes(node))


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARISONS[type(node.ops[0])]()
        yield ast.Compare(node.left, [other], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield _parenthesized(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield _parenthesized(node.operand)
    elif isinstance(node, ast.BoolOp):
        other_way = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _parenthesized(ast.BoolOp(other_way, node.values))
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield _parenthesized(ast.IfExp(node.test, node.orelse, node.body))
    elif isinstance(node, ast.AugAssign | ast.Expr):
        yield ast.Pass()


def _parenthesized(expression: ast.expr) -> ast.expr:
    """An expression in parentheses: what stands around it must not change its meaning."""
    return ast.Name(f"({ast.unparse(expression)})")


def _with_segment(source: str, node: ast.AST, text: str) -> str:
    """The source with the text of one node replaced."""
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    # Offsets count bytes.
    head = lines[first].encode()[: node.col_offset].decode()  # type: ignore[attr-defined]
    tail = lines[last].encode()[node.end_col_offset :].decode()  # type: ignore[attr-defined]
    return "".join([*lines[:first], head, text, tail, *lines[last + 1 :]])


def _package(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "calibrank").parts[0]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:87]}..."


def survivors_of(package: str, mutants: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """Those mutants of a package that no test fails for.

    Without a change all tests must pass: every mutant would seem killed otherwise.
    """
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outcomes.json"
        run = partial(_try_all, package, mutants, jobs, written)
        if _in_a_fork(run) not in PASSED:
            raise RuntimeError(f"the tests of {package} must pass without a change")
        outcomes, seconds = json.loads(written.read_text(encoding="utf-8"))
    for mutant, outcome in zip(mutants, outcomes, strict=True):
        # These need an import of the changed file.
        if outcome == NOT_TRIED:
            outcome = _outcome_after_import(mutant, seconds)
            _report(mutant, outcome)
        if outcome == SURVIVED:
            survivors.append(mutant)
    return survivors


def _report(mutant: Mutant, outcome: int) -> None:
    print(f"{'SURVIVED' if outcome == SURVIVED else 'killed'} {mutant}", flush=True)


def _try_all(package: str, mutants: Sequence[Mutant], jobs: int, written: Path) -> int:
    outcomes = [NOT_TRIED] * len(mutants)
    terminal = os.fdopen(os.dup(1), "w")

    def report(number: int, outcome: int) -> None:
        outcomes[number] = outcome
        if outcome != NOT_TRIED:
            with redirect_stdout(terminal):
                _report(mutants[number], outcome)

    changes = [Change(mutant.path, mutant.content, mutant.lines) for mutant in mutants]
    trials = Trials(ROOT / "src" / "calibrank", changes, jobs, report)
    trials.tracer.start()  # imports are traced, too
    status = _run_tests(ROOT, TESTS[package], trials)
    written.write_text(json.dumps([outcomes, trials.tracer.seconds]), encoding="utf-8")
    return status


def _outcome_after_import(mutant: Mutant, seconds: dict[str, float]) -> int:
    """Whether a test fails with this change, in a process that has not imported calibrank."""
    quick = Quick(seconds)
    with _copy_of_sources() as copy:
        (copy / mutant.path.relative_to(ROOT)).write_text(mutant.content, encoding="utf-8")
        status = _in_a_fork(lambda: _run_tests(copy, TESTS[_package(mutant.path)], quick))
    return SURVIVED if status in PASSED else KILLED


@contextmanager
def _copy_of_sources() -> Iterator[Path]:
    """A folder with the sources, which can be changed, and with what tests read."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("tests", "reproduce", "docs", "conftest.py", "pyproject.toml"):
            (copy / name).symlink_to(ROOT / name)
        yield copy


def _in_a_fork(run: Callable[[], int]) -> int:
    """The status of a function in a fork of this process, which has not imported calibrank."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(run), 0)[1])


def _run_tests(copy: Path, tests: list[str], plugin: object) -> int:
    os.chdir(copy)
    sys.path[:0] = [str(copy / "src"), str(copy)]
    os.environ["PYTHONPATH"] = str(copy / "src")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    quick = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
    quick += ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-k", "not spark"]
    if any(test.startswith("tests") for test in tests):  # docstrings do not know the profile
        quick += ["--hypothesis-profile=mutation"]
    return int(pytest.main([*quick, *tests], plugins=[plugin]))


if __name__ == "__main__":
    sys.exit(main())
