"""Commands as data: what their options are, how arguments are parsed, and the text of `--help`.

Nothing heavy is imported here: help and wrong usage must not wait for what a command needs to run.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import cleandoc
from itertools import islice
from pathlib import Path
from shutil import get_terminal_size
from sys import float_info
from textwrap import wrap
from types import SimpleNamespace
from typing import Any, NamedTuple

from calibrank.cli.failures import UsageError
from calibrank.errors import Remedy

REQUIRED: Any = object()
"""The default of what must be given."""

# Of help, and of the labels in it.
_WIDEST = 100
_WIDEST_LABEL = 24


def path(text: str) -> Path:
    """A path; an existing one must be readable."""
    # A name that is too long does not exist; `Path.exists` would raise.
    if os.path.exists(text) and not os.access(text, os.R_OK):  # noqa: PTH110  (see above)
        raise PermissionError(errno.EACCES, "no permission to read it", text)
    return Path(text)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a range, which the rule states."""

    low: float
    high: float
    rule: str
    is_whole: bool = False

    def __call__(self, text: str) -> float:
        try:
            value = int(text) if self.is_whole else float(text)
        except ValueError:
            raise ValueError("be a whole number" if self.is_whole else "be a number") from None
        if not self.low <= value <= self.high:
            raise ValueError(self.rule, value)
        return value


def whole(low: int, high: int = 1_000_000) -> Number:
    """A whole number in a range."""
    return Number(low, high, f"be in the range {low}<=x<={high}", is_whole=True)


FINITE = Number(-float_info.max, float_info.max, "be a finite number")
PROBABILITY = Number(0, 1, "lie in [0, 1]")
# Smaller ones would only overflow later.
FRACTION = Number(1e-12, 1, "lie in (0, 1]")
RATE = Number(1e-12, 1 - 1e-12, "lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some names, in upper or lower case."""

    names: tuple[str, ...]

    def __call__(self, text: str) -> str:
        for name in self.names:
            if as_typed(name) == as_typed(text):
                return name
        raise ValueError(f"be one of {', '.join(self.names)}")


def as_typed(name: str) -> str:
    """A member's name as it is typed on the command line.

    >>> as_typed("GammaGaussian"), as_typed("naive_bayes")
    ('gammagaussian', 'naive-bayes')
    """
    return name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Option:
    """An option such as `--out -o`, or an argument such as `TABLE`.

    Words after its names stand for its values; "..." says that it may be given several times.
    """

    flags: str
    help: str
    kind: Callable[[str], Any] = str
    default: Any = None
    panel: str = "Options"

    @property
    def names(self) -> list[str]:
        return [word for word in self.flags.split() if word[0] == "-"] or self.flags.split()[:1]

    @property
    def values(self) -> list[str]:
        """What help calls its values: as declared, or after what they are."""
        usual = {Number: "NUMBER", OneOf: "NAME"}.get(type(self.kind), "TEXT")
        usual = "PATH" if self.kind is path else usual
        return [word for word in self.flags.split() if word[0] not in "-."] or [usual]

    @property
    def name(self) -> str:
        """The parameter that it sets."""
        return self.names[0].strip("-[]").replace("-", "_").lower()

    @property
    def is_argument(self) -> bool:
        return not self.flags.startswith("-")

    @property
    def is_repeated(self) -> bool:
        return self.flags.endswith("...")

    @property
    def label(self) -> str:
        """How help shows it."""
        if self.kind is bool or self.is_argument:
            return self.flags
        return f"{', '.join(self.names)} {' '.join(self.values)}"

    @property
    def full_help(self) -> str:
        """Its help, with the names that it may have and its default."""
        names = f" One of {', '.join(self.kind.names)}." if isinstance(self.kind, OneOf) else ""
        note = f" [default: {self.default}]"
        if self.default is REQUIRED:
            note = " [required]"
        elif self.default is None or self.default is False:
            note = ""
        again = " May be repeated." if self.is_repeated and not self.is_argument else ""
        return f"{self.help}{names}{again}{note}"


_HELP = Option("--help", "Show this message and exit.", bool, default=False)


class Rule(NamedTuple):
    """Options that have no effect without the one that they need, or that exclude each other."""

    flags: str
    needs: str = ""
    reason: str = ""

    def check(self, typed: Collection[str]) -> None:
        """Refuse options that break the rule, of those that are on the command line."""
        used = [flag for flag in self.flags.split() if flag in typed]
        if self.needs and used and self.needs not in typed:
            alone = f"not be given without {self.needs}: it would have no effect"
            rule = f"go with {self.needs}{self.reason}" if self.reason else alone
            raise UsageError(" and ".join(used), rule)
        if not self.needs and len(used) > 1:
            rule = f"not both be given{self.reason}"
            raise UsageError(" and ".join(used), rule, remedy="Leave one out.")


class Given(SimpleNamespace):
    """What a command was given: the value of each option, by its parameter.

    Functions of several commands ask for the two with a default, which not all commands have.
    """

    typed: dict[str, str]
    """The options and arguments on the command line, by parameter."""
    position: str | None = None
    negatives_kept: float = 1.0

    def refuse(self, reason: str, *names: str) -> None:
        """Refuse options without effect here; `reason` completes "--x must not be given ..."."""
        used = [flag for name, flag in self.typed.items() if name in names]
        if used:
            raise UsageError(", ".join(used), f"not be given {reason}: it would have no effect")


class Command(NamedTuple):
    """A command: its name, its help, its options in the order of help, and rules about them."""

    name: str
    text: str
    options: tuple[Option, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def title(self) -> str:
        return f"calibrank {self.name}".strip()

    @property
    def summary(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def members(self) -> list["Command"]:
        """The commands of a group: of `calibrank`, or of `calibrank search`."""
        depth = len(self.name.split())
        found = []
        for name, each in COMMANDS.items():
            words = name.split()
            if words[:depth] == self.name.split() and len(words) == depth + 1:
                found.append(each)
        return found

    def given(self, arguments: Sequence[str]) -> Given | None:
        """The values of all parameters, or None if help is asked for."""
        texts = self.texts(arguments)
        if _HELP.name in texts:
            return None
        typed = {}
        for each in self.options:
            if each.name in texts:
                typed[each.name] = each.names[0].strip("[]")
        values: dict[str, Any] = {}
        for option in sorted(self.options, key=lambda each: each.name not in texts):
            if option.name in texts:
                values[option.name] = self._convert(option, texts[option.name])
            elif option.default is REQUIRED:
                raise self._wrong(option.names[0], "be given")
            else:
                values[option.name] = [] if option.is_repeated else option.default
        for rule in self.rules:
            rule.check(typed.values())
        return Given(typed=typed, **values)

    def texts(self, arguments: Sequence[str]) -> dict[str, list[str]]:
        """What is given on the command line, by parameter."""
        found: dict[str, list[str]] = {}
        loose: list[str] = []
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                loose += rest
            elif argument.startswith("-") and argument != "-":
                option, texts = self._option(argument, rest)
                found[option.name] = found.get(option.name, []) + texts
            else:
                loose.append(argument)
        if loose and self.members:
            names = [each.name.split()[-1] for each in self.members]
            raise self._wrong("the command", f"be one of {', '.join(names)}", repr(loose[0]))
        positional = [option for option in self.options if option.is_argument]
        if len(loose) > len(positional) and not (positional and positional[-1].is_repeated):
            raise self._wrong("arguments", f"be at most {len(positional)}", repr(loose[-1]))
        for at, option in enumerate(positional[: len(loose)]):
            found[option.name] = loose[at:] if option.is_repeated else [loose[at]]
        return found

    def _option(self, argument: str, rest: Iterator[str]) -> tuple[Option, list[str]]:
        flag, has_value, value = argument.partition("=")
        if not argument.startswith("--"):  # -o FILE and -oFILE
            flag, value = argument[:2], argument[2:]
            has_value = value
        by_flag = {name: option for option in (*self.options, _HELP) for name in option.names}
        if flag not in by_flag:
            close = ", ".join(get_close_matches(flag, by_flag))
            hint = f"Did you mean {close}?" if close else ""
            raise self._wrong("options", "be those of the command", flag, hint)
        option = by_flag[flag]
        if option.kind is bool:
            if has_value:
                raise self._wrong(flag, "have no value", repr(value))
            return option, [flag]
        texts = [value] if has_value else list(islice(rest, len(option.values)))
        if len(texts) < len(option.values):
            rule = f"have {' and '.join(option.values)}" if texts else "have a value"
            raise self._wrong(flag, rule, "one" if texts else "none")
        return option, texts

    def _convert(self, option: Option, texts: list[str]) -> Any:
        if any(not text or "\0" in text for text in texts):
            # As of `--label "$RULE"` where a variable is not set.
            rule = "not be empty, nor hold a NUL character"
            raise self._wrong(option.names[0], rule, repr(texts[-1]), "Give a value.")
        try:
            values = [option.kind(text) for text in texts]
        except ValueError as error:
            rule, got, *_ = (*error.args, repr(texts[-1]))
            raise self._wrong(option.names[0], rule, got) from None
        if len(option.values) > 1:
            return tuple(values[-len(option.values) :])
        return values if option.is_repeated else values[-1]

    def _wrong(self, subject: str, rule: str, got: object = "none", hint: str = "") -> UsageError:
        remedies: list[Remedy] = [hint, f"See {self.title} --help."]
        return UsageError(subject, rule, got, remedy=remedies)

    def help(self) -> str:
        """The text of `--help`, as wide as the terminal."""
        shown = [option.flags for option in self.options if option.is_argument]
        shown += ["COMMAND ..."] * bool(self.members)
        lines = [" ".join(["Usage:", self.title, "[OPTIONS]", *shown]), ""]
        for paragraph in self.text.split("\n\n"):
            lines += [*_wrapped(paragraph), ""]
        panels: dict[str, list[Option]] = {}
        for option in (*self.options, _HELP):
            panel = "Arguments" if option.is_argument else option.panel
            panels.setdefault(panel, []).append(option)
        for panel, options in panels.items():
            lines += [f"{panel}:", *_rows({each.label: each.full_help for each in options}), ""]
        if self.members:
            lines += ["Commands:", *_rows({each.name: each.summary for each in self.members})]
        return "\n".join(lines).rstrip()


def _rows(texts: dict[str, str]) -> list[str]:
    """Lines of help: labels, and texts beside them."""
    indent = 4 + min(max(map(len, texts)), _WIDEST_LABEL)
    lines = []
    for label, text in texts.items():
        start = f"  {label:{indent - 2}}"
        if len(label) > indent - 4:
            lines.append(start.rstrip())
            start = " " * indent
        lines += _wrapped(text, start, " " * indent)
    return lines


def _wrapped(text: str, first: str = "", others: str = "") -> list[str]:
    width = min(get_terminal_size().columns, _WIDEST)
    text = " ".join(text.split())
    return wrap(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


COMMANDS: dict[str, Command] = {}
"""All commands by name, as `calibrank.cli.commands` declares them; "" is `calibrank` itself."""


def find_command(arguments: list[str]) -> tuple[Command, list[str]]:
    """The command that arguments name, and the rest of them."""
    words = next(n for n in (2, 1, 0) if " ".join(arguments[:n]) in COMMANDS)
    return COMMANDS[" ".join(arguments[:words])], arguments[words:]


def command(*options: Option, rules: Sequence[Rule] = ()) -> Callable[[Callable[[], None]], None]:
    """Declare a command: the function has its name and its help, and is not called."""

    def declare(function: Callable[[], None]) -> None:
        name = function.__name__.replace("_", " ").removeprefix("calibrank")
        COMMANDS[name] = Command(name, cleandoc(function.__doc__ or ""), options, tuple(rules))

    return declare
