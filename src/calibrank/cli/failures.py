"""What every failure becomes: one line on standard error and a known exit code.

Nothing heavy is imported here, because it must work where memory, disk or a package is missing.
"""

import errno
import os
import platform
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
CLOSED_PIPE = 1  # the code that rich exits with, too
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
    shown = []
    for each in text:
        is_harmless = each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cf", "Cs")
        shown.append(each if is_harmless else each.encode("unicode_escape").decode())
    return "".join(shown)


def _describe(error: BaseException, options: Mapping[str, str]) -> tuple[str, int]:
    if isinstance(error, CalibrankError):
        return _describe_own(error, options)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted.", INTERRUPTED
    if _is_out_of_memory(error):
        message = f"this command must have more memory, got: {error}. Raise the limit, set "
        return f"{message}CALIBRANK_THREADS=1, or use a smaller table.", OUT_OF_MEMORY
    if isinstance(error, OSError):
        return _os_message(error), INVALID_DATA
    # Names of files may have bytes that are not UTF-8, which Python escapes.
    if isinstance(error, UnicodeEncodeError) and "\ud800" <= error.object[error.start] <= "\udfff":
        message = f"every name must be UTF-8 text, got {error.object[:60]!r}. Rename it."
        return message, INVALID_DATA
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
        return (
            f"{os.fsdecode(error.filename)} must be a file that can be used, got: "
            f"{error.strerror}. Check its name and its permissions."
        )
    return str(error) or type(error).__name__


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
