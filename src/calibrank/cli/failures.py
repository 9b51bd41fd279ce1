"""What every failure becomes: one line on standard error and a known exit code.

Nothing heavy is imported here, because it must work where memory, disk or a package is missing.
"""

import errno
import os
import platform
import re
import shlex
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

from calibrank._internal.interrupt import INTERRUPTED
from calibrank.errors import CalibrankError, DataError, FitError, MissingExtraError, Setting

# Scripts depend on these numbers; docs/cli.md lists them.
CLOSED_PIPE = 1  # the code that typer and rich exit with, too
WRONG_USAGE = 2
INVALID_DATA = 3
NO_FIT = 4
MISSING_PACKAGE = 5
OUT_OF_MEMORY = 6
BUG = 70

# Libraries report a failed allocation in errors of their own, told apart only by their text.
_MEMORY_PHRASES = (
    "out of memory",
    "allocate memory",
    "can't start new thread",
    "failed to map segment",
    "bad_alloc",
)


class UsageError(CalibrankError):
    """Options that are invalid, or that cannot be combined, whatever the table contains."""


_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, WRONG_USAGE),
    (DataError, INVALID_DATA),
    (FitError, NO_FIT),
    (MissingExtraError, MISSING_PACKAGE),
    (CalibrankError, INVALID_DATA),
)


def report_failure(error: BaseException, options: Mapping[str, str] = MappingProxyType({})) -> int:
    """Print an error as one line, and return the exit code of its kind.

    `options` are those of the command by parameter: an error about one is about its option, and
    remedies that name a parameter without an option are left out.
    """
    message, code = _describe(error, options)
    print_line("31", message)
    return code


def print_line(colour: str, message: str) -> None:
    """Print one line on standard error, in an ANSI colour if it is a terminal."""
    name = "calibrank:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        name = f"\x1b[{colour}m{name}\x1b[0m"
    # One write: lines of several processes that share a log do not mix.
    sys.stderr.write(f"{name} {printable(' '.join(message.split()))}\n")


def printable(text: str) -> str:
    r"""Text without characters that control a terminal; they are shown as escapes.

    Names of files, columns and ids come from others, and may hold escape sequences or marks that
    reverse the direction of writing.

    >>> print(printable("a\x1b[31mb"))
    a\x1b[31mb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if _is_harmless(character) else _escape(character) for character in text
    )


def _is_harmless(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _describe(error: BaseException, options: Mapping[str, str]) -> tuple[str, int]:
    if isinstance(error, CalibrankError):
        return _describe_own(error, options)
    if _is_interrupt(error):
        return "interrupted.", INTERRUPTED
    if hasattr(error, "format_message"):  # what typer found in the command line
        return _describe_usage(error)
    if _is_out_of_memory(error):
        return _memory_message(error), OUT_OF_MEMORY
    if isinstance(error, OSError) or _is_about_a_name(error):
        return _input_message(error), INVALID_DATA
    return _bug_message(error), BUG


def _describe_own(error: CalibrankError, options: Mapping[str, str]) -> tuple[str, int]:
    def option(setting: Setting) -> str | None:
        return as_option(setting) if setting.name in options else None

    # Errors about a row are about a column of the table, whatever its name.
    named = error.row is None and options.get(error.subject, "").startswith("-")
    if named and isinstance(error, DataError):
        return error.text(option, options[error.subject]), WRONG_USAGE
    code = next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
    return error.text(option), code


def as_option(setting: Setting) -> str:
    """A parameter and its value as they are written on the command line."""
    value = f" {shlex.quote(setting.value)}" if setting.value else ""
    return f"--{setting.name.replace('_', '-')}{value}"


def _is_about_a_name(error: BaseException) -> bool:
    """Whether a name has a byte that is not UTF-8, as names of files may; Python escapes it."""
    if not isinstance(error, UnicodeEncodeError):
        return False
    return "\ud800" <= error.object[error.start] <= "\udfff"


def _input_message(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"every name must be UTF-8 text, got {error.object[:60]!r}. Rename it."
    return _os_message(error) if isinstance(error, OSError) else str(error)


def _memory_message(error: BaseException) -> str:
    return (
        f"this command must have more memory, got: {error}. Raise the limit, set "
        "CALIBRANK_THREADS=1, or use a smaller table."
    )


def _is_interrupt(error: BaseException) -> bool:
    # typer turns an interrupt into an exception of its own.
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort"


# The parser of the command line looks at files, too: this one is no matter of usage.
_UNREADABLE = re.compile(r"(?:Path|File|Directory) '(.*)' is not readable")

# What the parser of the command line says about values, in the words of all other messages.
_PARSER_WORDS = (
    (
        re.compile(r"Invalid value for '([^']+)'[^:]*: (.*) is not a valid (int|integer)\b.*"),
        r"\1 must be a whole number, got \2.",
    ),
    (
        re.compile(r"Invalid value for '([^']+)'[^:]*: (.*) is not a valid float\b.*"),
        r"\1 must be a number, got \2.",
    ),
    (
        re.compile(r"Invalid value for '([^']+)'[^:]*: (.*) is not in the range (\S+?)\.?$"),
        r"\1 must be in the range \3, got \2.",
    ),
    (
        re.compile(r"Invalid value for '([^']+)'[^:]*: (.*) is not one of (.*?)\.?$"),
        r"\1 must be one of \3, got \2.",
    ),
    (re.compile(r"Invalid value for '([^']+)'[^:]*: must (.*)"), r"\1 must \2"),
    (
        re.compile(r"Option '?([^' ]+)'? requires an argument\.?"),
        r"\1 must have a value, got none.",
    ),
    (
        re.compile(r"Missing (?:option|argument|parameter):? '([^']+)'.*"),
        r"\1 must be given, got none.",
    ),
    (
        re.compile(r"No such option:? '?(-[^' ]*?)'?\.?(?= |$)"),
        r"options must be those of the command, got \1.",
    ),
)


def _describe_usage(error: object) -> tuple[str, int]:
    message = str(error.format_message())  # type: ignore[attr-defined]  # checked by the caller
    unreadable = _UNREADABLE.search(message)
    if unreadable is not None:
        return _unusable(unreadable[1], "no permission to read it"), INVALID_DATA
    return _usage_message(error, message), WRONG_USAGE


def _usage_message(error: object, message: str) -> str:
    for pattern, words in _PARSER_WORDS:
        message = pattern.sub(words, message)
    context = getattr(error, "ctx", None)
    command = "calibrank" if context is None else context.command_path
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See {command} --help."


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    is_candidate = isinstance(error, RuntimeError | ImportError | OSError)
    return is_candidate and any(phrase in text for phrase in _MEMORY_PHRASES)


def _os_message(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the output must fit on the disk, got: {error}. Free some space, or use another."
    if error.strerror and error.filename is not None:
        return _unusable(os.fsdecode(error.filename), error.strerror)
    return str(error) or type(error).__name__


def _unusable(name: str, reason: str) -> str:
    return (
        f"{name} must be a file that can be used, got: {reason}. "
        "Check its name and its permissions."
    )


def _bug_message(error: BaseException) -> str:
    """Write the traceback to a log file, and say where it is."""
    kind = f"{type(error).__name__}: {str(error)[:200]}"
    about = f"{sys.argv}\n{sys.version}\n{platform.platform()}\n\n"
    text = about + "".join(traceback.format_exception(error))
    try:
        # mkstemp: a name that nobody can predict, readable by this user alone.
        handle, path = tempfile.mkstemp(prefix="calibrank-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as reason:
        return f"this is a bug, please report it ({kind}). No log could be written: {reason}."
    return f"this is a bug, please report it with the log file {path} ({kind})."
