"""Text files of runs and judgements, which may be compressed by gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from calibrank.errors import DataError
from calibrank.tabular.csv_files import not_utf8

# Fifty million lines of a run: more than fit into memory as Python's objects.
_LARGEST_TEXT = 2**31

# Packed runs unpack to 4 to 10 times their size. What unpacks to much more is a file of repeated
# lines, whose rows would need gigabytes before a pair is found twice.
_LARGEST_RATIO = 30
_SMALL_TEXT = 2**26

# How packed files start.
_GZIP = b"\x1f\x8b"


def text_of(file: Path) -> str:
    """The text of a file, decompressed, without the byte order mark that some editors write."""
    content = file.read_bytes()
    if is_compressed(file):
        content = _decompressed(file, content)
    elif content.startswith(_GZIP):
        raise DataError(
            file, "be text, or have a name that ends in .gz", "text packed by gzip", "Rename it."
        )
    # UTF-16 without a mark: an ASCII character has a zero in its two bytes.
    if b"\0" in content[:2]:
        raise DataError(file, "be UTF-8 text", "UTF-16", "Convert it: iconv -f utf16 -t utf8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(file, f"another byte at {error.start:,}") from None


def is_compressed(file: Path) -> bool:
    """Whether a file's name says that it is packed by gzip."""
    return file.suffix.lower() == ".gz"


def _decompressed(file: Path, content: bytes) -> bytes:
    """What gzip packed, up to a bound: a few megabytes may claim to be terabytes."""
    largest = min(_LARGEST_TEXT, max(_SMALL_TEXT, _LARGEST_RATIO * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            unpacked = packed.read(largest + 1)
    except (EOFError, OSError, zlib.error) as error:
        rule = "be a complete file that gzip packed"
        raise DataError(file, rule, error, "Copy or pack it again.") from None
    if len(unpacked) > largest:
        found, remedy = "more", "Unpack it, or divide it by query."
        raise DataError(file, f"unpack to at most {largest:,} bytes", found, remedy)
    return unpacked
