"""Run every command on bad input, as real processes, and judge what each case becomes.

The cases are made from the declarations of the commands: each option gets bad values of its kind,
each file is replaced by damaged ones. A case fails if it ends in a bug (exit code 70), a traceback
or a hang, leaves output behind although it failed, fails without one clear line, or succeeds with
numbers that are no probabilities. Totals are printed by command; the exit code is 1 if any failed.

    python tools/corpus.py
    python tools/corpus.py --command fit --verbose
"""

import argparse
import csv
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from calibrank.cli import commands, search_commands
from calibrank.cli.parse import COMMANDS, REQUIRED, Command, Number, OneOf, Option, path

DECLARED = (commands, search_commands)  # importing them fills COMMANDS

SECONDS = 120
"""A case that takes longer hangs."""

OUT = "OUT"  # stands for a name in the folder of the case
ROWS = 240
CODES = {0, 2, 3, 4, 5, 6, 7}

# What succeeds, so that one thing at a time can be wrong.
GOOD = {
    "train": ["log.csv", "-o", OUT, "--epochs", "1", "--dim", "2"],
    "score": ["model", "log.csv", "-o", OUT + ".csv", "--to", "points"],
    "diagnose": ["log.csv", "--item", "item_id"],
    "fit": ["log.csv", "--item", "item_id", "-o", OUT + ".json"],
    "anchor": ["map.json", "log.csv", "-o", OUT + ".json"],
    "apply": ["map.json", "log.csv", "-o", OUT + ".csv"],
    "evaluate": ["log.csv", "--map", "map.json"],
    "compare": ["log.csv", "--user", "user_id", "--item", "item_id"],
    "control": ["log.csv", "--map", "map.json", "--user", "user_id"],
    "inspect": ["map.json"],
    "report": ["log.csv", "--map", "map.json", "-o", OUT + ".html"],
    "monitor": ["days", "--map", "map.json", "--add", "log.csv", "--date", "2026-01-02"],
    "export": ["map.json", "--to", "sql", "--dialect", "duckdb"],
    "search fit": ["run.trec", "qrels.txt", "-o", OUT + ".json"],
    "search apply": ["map.json", "run.trec", "-o", OUT + ".trec"],
    "search plan": ["map.json", "run.trec", "-o", OUT + ".csv"],
    "reproduce": ["specs", "--from-rows", "rows.parquet", "--out", OUT],
    "demo": ["--pairs", "1000", "--out", OUT],
}
SPEC = """
title = "Small"
why = "It is fast."
splits = ["random"]
models = ["BPR"]
methods = ["Platt"]
losses = ["naive"]
why_negatives = "None."
[negatives.default]
naive = 1
"""
AS_MEANT = "as meant"  # it must succeed: otherwise the others test nothing
NUMBERS = ["", "nan", "inf", "-1", "1e400", "0", "2", "x", "0,5"]
WHOLES = ["", "-1", "1.5", "x", "99999999999999999999", "0x10"]
NAMES = ["", "nonsense", "Gaussian;", "a" * 300]
TEXTS = ["", "nosuch", "n" * 300, "score\u202e", "label; DROP TABLE t", "score,label", "*"]
PATHS = ["nosuch.json", "folder", "empty", "noise", "/dev/null/x", "p" * 300]


@dataclass(frozen=True)
class Case:
    """One command line that a user might type by mistake."""

    command: str
    what: str
    arguments: tuple[str, ...]


def write_table(file: Path, change: Callable[[dict[str, object]], object] | None = None) -> None:
    """A table of pairs, of which `change` spoils each row."""
    draw = random.Random(0)  # noqa: S311  (no secret)
    rows = []
    for row in range(ROWS):
        score = draw.gauss(0, 1)
        cells: dict[str, object] = {
            "user_id": f"u{row % 24}",
            "item_id": f"i{draw.randrange(30)}",
            "score": f"{score:.4f}",
            "label": int(draw.random() < 0.2 + 0.3 * (score > 0)),
            "propensity": 0.5,
            "weight": 1,
            "country": draw.choice(["de", "fr", "it"]),
            "price": f"{draw.lognormvariate(2, 1):.2f}",
            "rank": 1 + row % 10,
            "time": row,
        }
        if change is not None:
            change(cells)
        rows.append(cells)
    with file.open("w", newline="", encoding="utf-8") as output:
        writer = csv.DictWriter(output, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def every(column: str, value: object) -> Callable[[dict[str, object]], object]:
    """The change that sets a whole column."""
    return lambda cells: cells.update({column: value})


def once(column: str, value: object) -> Callable[[dict[str, object]], object]:
    """The change that sets one cell."""
    at = iter(range(ROWS))
    return lambda cells: cells.update({column: value}) if next(at) == ROWS // 2 else None


SPOILED = {
    **{
        f"one_{column}_{value}": once(column, value)
        for column in ("score", "label")
        for value in ("", "nan", "inf", "1e300", "-1e15", "text", "7", "0.5", "true", "\uff11")
    },
    **{
        f"all_{column}_{value}": every(column, value)
        for column in ("score", "label")
        for value in (0, 1, "", "5")
    },
    "propensity_zero": once("propensity", 0),
    "propensity_tiny": every("propensity", "5e-324"),
    "weights_zero": every("weight", 0),
    "weights_huge": every("weight", "1e200"),
    "no_user": once("user_id", ""),
    "one_user": every("user_id", "u"),
    "rank_zero": once("rank", 0),
    "no_country": once("country", ""),
    "no_price": once("price", ""),
}


def write_files(folder: Path) -> list[str]:
    """Write good and damaged files; return the names of the damaged tables."""
    write_table(folder / "log.csv")
    text = (folder / "log.csv").read_text()
    run = (
        f"q{query} Q0 d{rank} {rank} {11 - rank + query / 10} bm25"
        for query in range(12)
        for rank in range(1, 11)
    )
    grades = (
        f"q{query} 0 d{rank} {int(rank * 7 % 10 < 4)}"
        for query in range(12)
        for rank in range(1, 11)
    )
    (folder / "run.trec").write_text("\n".join(run) + "\n")
    (folder / "qrels.txt").write_text("\n".join(grades) + "\n")
    (folder / "folder").mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "noise").write_bytes(random.Random(1).randbytes(3000))  # noqa: S311  (no secret)
    damaged = {
        "header.csv": text.partition("\n")[0].encode() + b"\n",
        "one_row.csv": "\n".join(text.split("\n")[:2]).encode(),
        "cut.csv": text[: len(text) // 2 - 3].encode(),
        "utf16.csv": text.encode("utf-16"),
        "bom.csv": b"\xef\xbb\xbf" + text.encode(),
        "crlf.csv": text.replace("\n", "\r\n").encode(),
        "nul.csv": text.replace("de", "d\0").encode(),
        "twice.csv": text.replace("weight", "score", 1).encode(),
        "renamed.csv": text.replace("score", "value", 1).encode(),
        "quoted.csv": text.replace("de", '"d', 1).encode(),
        "text.parquet": text.encode(),
        "cut.parquet": b"PAR1" + b"\0" * 40,
        "packed.csv.gz": gzip.compress(text.encode())[:-9],
        "html.csv": b"<html><body>not found</body></html>",
    }
    for name, content in damaged.items():
        (folder / name).write_bytes(content)
    for name, change in SPOILED.items():
        write_table(folder / f"{name}.csv", change)
    return [*damaged, *(f"{name}.csv" for name in SPOILED), "empty", "folder", "noise", "nosuch"]


def write_maps(folder: Path) -> list[str]:
    """Write a good map and damaged ones; return the names of these."""
    # Not on all rows: `control` refuses those of the fit.
    lines = (folder / "log.csv").read_text().splitlines(keepends=True)
    (folder / "most.csv").write_text("".join(lines[:-1]))
    run(folder, ["fit", "most.csv", "--item", "item_id", "-o", "map.json"])
    run(folder, ["train", *GOOD["train"][:1], "-o", "model", *GOOD["train"][3:]])
    (folder / "specs").mkdir()
    (folder / "specs" / "small.toml").write_text(SPEC)
    run(folder, ["reproduce", "specs", "--seeds", "1", "--epochs", "1", "--out", "cells"])
    (folder / "rows.parquet").symlink_to(folder / "cells" / "synthetic" / "rows.parquet")
    text = (folder / "map.json").read_text()
    document = json.loads(text)
    damaged: dict[str, str] = {
        "cut_map.json": text[: len(text) // 2],
        "list_map.json": "[1, 2]",
        "nan_map.json": text.replace("0.", "NaN, 0.", 1),
        "deep_map.json": "[" * 5000,
        "newer_map.json": json.dumps({**document, "format": 99, "version": 99}),
    }
    for key in document:
        damaged[f"no_{key}.json"] = json.dumps({k: v for k, v in document.items() if k != key})
        damaged[f"null_{key}.json"] = json.dumps({**document, key: None})
        damaged[f"text_{key}.json"] = json.dumps({**document, key: "x"})
    for name, content in damaged.items():
        (folder / name).write_text(content)
    return [*damaged, "log.csv", "empty", "folder", "noise", "nosuch"]


def run(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one command as a process of its own."""
    command = [sys.executable, "-m", "calibrank", *arguments]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "CALIBRANK_THREADS": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        errors="replace",
    )


def cases_of(command: Command, tables: list[str], maps: list[str]) -> Iterator[Case]:
    """Everything that goes wrong with one command, one thing at a time."""
    good = GOOD[command.name]

    def case(what: str, arguments: list[str]) -> Case:
        return Case(command.name, what, tuple(arguments))

    yield case(AS_MEANT, good)
    if any(option.default is REQUIRED for option in command.options):
        yield case("nothing given", [])
    yield case("unknown option", [*good, "--nonsense"])
    yield case("option without value", [*good, command.options[-2].names[0]])
    yield case("too many arguments", [*good, "another", "and another"])
    for option in command.options:
        if option.is_argument or option.kind is bool:
            continue
        for value in values_for(option):
            given = [value] * len(option.values)
            yield case(f"{option.names[0]} {value[:40]!r}", [*good, option.names[0], *given])
    for at, word in enumerate(good):
        replacements = maps if word == "map.json" else tables if word == "log.csv" else []
        if word in {"run.trec", "qrels.txt", "rows.parquet", "model"}:
            replacements = [
                "empty",
                "noise",
                "folder",
                "nosuch",
                "log.csv",
                "map.json",
                "utf16.csv",
                "text.parquet",
                "run.trec" if word != "run.trec" else "qrels.txt",
            ]
        for name in replacements:
            yield case(f"{word} is {name}", [*good[:at], name, *good[at + 1 :]])


def values_for(option: Option) -> list[str]:
    """Bad values of an option's kind."""
    if isinstance(option.kind, Number):
        return WHOLES if option.kind.is_whole else NUMBERS
    if isinstance(option.kind, OneOf):
        return NAMES
    return PATHS if option.kind is path else TEXTS


def judge(case: Case, source: Path) -> str:
    """What a case became: refused, handled, or a kind of failure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in source.iterdir():
            if file.is_dir():  # a case may write into it
                shutil.copytree(file, folder / file.name)
            else:
                (folder / file.name).symlink_to(file)
        before = {file.name for file in folder.iterdir()}
        arguments = [*case.command.split(), *case.arguments]
        try:
            done = run(folder, arguments)
        except subprocess.TimeoutExpired:
            return "hangs"
        except ValueError:  # a NUL byte cannot be passed at all
            return "refused"
        new = [file for file in folder.iterdir() if file.name not in before]
        return verdict(done, new)


def verdict(done: subprocess.CompletedProcess[str], new: list[Path]) -> str:
    """Judge an exit code, what was printed, and what was written."""
    if "Traceback" in done.stderr:
        return "traceback"
    if done.returncode not in CODES:
        return f"exit {done.returncode}"
    if done.returncode == 0:
        return "handled" if all(is_sound(file) for file in new) else "wrong numbers"
    if any(file.name.startswith(OUT) for file in new):
        return "partial output"
    last = done.stderr.strip().split("\n")[-1]
    is_clear = last.startswith("calibrank: ") and len(last) > 30
    return "refused" if is_clear or not done.stderr else f"unclear: {last[:100]}"


def is_sound(file: Path) -> bool:
    """Whether a file that was written holds no number outside [0, 1] as a probability."""
    if file.suffix != ".csv" or not file.is_file():
        return file.stat().st_size > 0
    with file.open(newline="", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            value = row.get("probability") or ""
            if value and not 0 <= float(value) <= 1:
                return False
    return True


def main() -> int:
    """Run all cases and print totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", help="only this command")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        tables = write_files(source)
        maps = write_maps(source)
        cases: list[Case] = []
        for command in COMMANDS.values():
            if command.name in GOOD and given.command in {None, command.name}:
                cases.extend(cases_of(command, tables, maps))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda case: judge(case, source), cases))
    return print_totals(cases, results, verbose=given.verbose)


def print_totals(cases: list[Case], results: list[str], *, verbose: bool) -> int:
    """Print the failures and the totals; return 1 if there is any failure."""
    failures = 0
    for case, result in zip(cases, results, strict=True):
        failed = result not in {"refused", "handled"}
        failed |= case.what == AS_MEANT and result != "handled"
        failures += failed
        if failed or verbose:
            print(f"{result}: calibrank {case.command} {' '.join(case.arguments)[:150]}")
    for command in GOOD:
        found = Counter(
            result for case, result in zip(cases, results, strict=True) if case.command == command
        )
        if found:
            print(f"{command}: {dict(found)}")
    print(f"{len(cases):,} cases, {failures} failures: {dict(Counter(results))}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
