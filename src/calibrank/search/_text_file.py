"""Text files of runs and judgements, which may be compressed by gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from calibrank.errors import DataError

# Fifty million lines of a run: more than fit into memory as Python's objects.
_LARGEST_TEXT = 2**31


def lines_of(file: Path) -> list[str]:
    """The lines of a text file."""
    return text_of(file).split("\n")


def text_of(file: Path) -> str:
    """The text of a file, decompressed, without the byte order mark that some editors write."""
    content = file.read_bytes()
    try:
        if is_compressed(file):
            content = _decompressed(file, content)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} must be UTF-8 text, got another byte at {error.start:,}. "
            "Convert it: iconv -f latin1 -t utf8."
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{file} must be compressed by gzip, got: {error}. Rename it, or pack it again."
        ) from None


def is_compressed(file: Path) -> bool:
    """Whether a file's name says that it is packed by gzip."""
    return file.suffix.lower() == ".gz"


def _decompressed(file: Path, content: bytes) -> bytes:
    """What gzip packed, up to a bound: a few megabytes may claim to be terabytes."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        unpacked = packed.read(_LARGEST_TEXT + 1)
    if len(unpacked) > _LARGEST_TEXT:
        raise DataError(
            f"{file} must unpack to at most {_LARGEST_TEXT:,} bytes, got more. Divide it by query."
        )
    return unpacked
