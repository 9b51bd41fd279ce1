"""Text files of runs and judgements, which may be compressed by gzip."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path

from calibrank.errors import DataError

# Fifty million lines of a run: more than fit into memory as Python's objects.
_LARGEST_TEXT = 2**31

# Packed runs unpack to 4 to 10 times their size. What unpacks to much more is a file of repeated
# lines, whose rows would need gigabytes before a pair is found twice.
_LARGEST_RATIO = 30
_SMALL_TEXT = 2**26

# How files start.
_GZIP = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def lines_of(file: Path) -> list[str]:
    """The lines of a text file, without the line ends of Unix or Windows."""
    return [line.removesuffix("\r") for line in text_of(file).split("\n")]


def text_of(file: Path) -> str:
    """The text of a file, decompressed, without the byte order mark that some editors write."""
    content = file.read_bytes()
    if is_compressed(file):
        content = _decompressed(file, content)
    elif content.startswith(_GZIP):
        raise DataError(
            file, "be text, or have a name that ends in .gz", "text packed by gzip", "Rename it."
        )
    # Without a mark, text that starts with an ASCII character has a zero in its first two bytes.
    if content.startswith(_UTF16_MARKS) or b"\0" in content[:2]:
        raise DataError(file, "be UTF-8 text", "UTF-16", "Convert it: iconv -f utf16 -t utf8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            file,
            "be UTF-8 text",
            f"another byte at {error.start:,}",
            "Convert it: iconv -f latin1 -t utf8.",
        ) from None


def is_compressed(file: Path) -> bool:
    """Whether a file's name says that it is packed by gzip."""
    return file.suffix.lower() == ".gz"


def _decompressed(file: Path, content: bytes) -> bytes:
    """What gzip packed, up to a bound: a few megabytes may claim to be terabytes."""
    largest = min(_LARGEST_TEXT, max(_SMALL_TEXT, _LARGEST_RATIO * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            unpacked = packed.read(largest + 1)
    except EOFError:
        raise DataError(
            file, "be a complete file", "one that ends too early", "Copy it again."
        ) from None
    except (OSError, zlib.error) as error:
        raise DataError(
            file, "be compressed by gzip", error, "Rename it, or pack it again."
        ) from None
    if len(unpacked) > largest:
        raise DataError(
            file,
            f"unpack to at most {largest:,} bytes",
            "more",
            "Unpack it, or divide it by query.",
        )
    return unpacked
