"""Datasets that may be downloaded freely: their addresses, hashes and licences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrank.errors import DataError, MissingExtraError


@dataclass(frozen=True, slots=True)
class Source:
    """An archive: its URL, its hash (checked after download) and its licence."""

    url: str
    known_hash: str
    licence: str


SOURCES = {
    "coat": Source(
        "https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
        "sha256:6073d0b515ed1f6e830e4fead66dc76ad7991a7553eaa58e228b234a9d19daed",
        "research use",
    ),
    "kuairec": Source(
        "https://zenodo.org/records/18164998/files/KuaiRec.zip",
        "md5:261550d472c48eff4990fb13c0e5bcf7",
        "CC BY-SA 4.0",
    ),
    "kuairand": Source(
        "https://zenodo.org/records/10439422/files/KuaiRand-Pure.tar.gz",
        "md5:0820331067a3784d9691136f772b35a7",
        "CC BY-SA 4.0",
    ),
}


def fetch(
    name: str,
    folder: str | Path | None = None,
    source: Source | None = None,
) -> Path:
    """Download and unpack a dataset, unless it is cached; returns the folder for its loader.

    Without `folder`, files go to pooch's cache for calibrank. A file with another hash is an error.
    """
    try:
        import pooch  # noqa: PLC0415  (only downloads need it)
    except ImportError as error:
        raise MissingExtraError("pooch", "data") from error
    source = SOURCES.get(name) if source is None else source
    if source is None:
        raise DataError(f"the dataset to fetch must be one of {', '.join(SOURCES)}, got {name!r}.")
    cache = Path(folder) if folder is not None else Path(pooch.os_cache("calibrank")) / name
    # The archive stays in the cache beside its unpacked files, so a second call downloads nothing.
    is_tar = source.url.endswith(".tar.gz")
    unpack: Callable[..., Any] = pooch.Untar if is_tar else pooch.Unzip
    try:
        pooch.retrieve(
            source.url,
            source.known_hash,
            path=cache,
            processor=unpack(extract_dir="files"),
            progressbar=True,
        )
    except ValueError as error:
        raise DataError(
            f"{source.url} must be the archive with the known hash, got a different file: {error}"
        ) from None
    return cache / "files"
