"""Datasets that may be downloaded freely: their addresses, hashes and licences."""

from __future__ import annotations

import json
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from calibrank._internal.arguments import instance, path_of, text
from calibrank._internal.atomic import write_atomic
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


def fetch(name: str, folder: str | Path | None = None, source: Source | None = None) -> Path:
    """Download and unpack a dataset, unless it is cached; returns the folder for its loader.

    Without `folder`, files go to pooch's cache for calibrank. A file with another hash is an error.
    """
    text("name", name, f"One of {', '.join(SOURCES)}.")
    if source is not None:
        instance("source", source, Source)
    if folder is not None:
        folder = path_of("folder", folder)
    try:
        import pooch  # noqa: PLC0415  (only downloads need it)
    except ImportError as error:
        raise MissingExtraError("pooch", "data") from error
    source = SOURCES.get(name) if source is None else source
    if source is None:
        raise DataError("name", f"be one of {', '.join(SOURCES)}", f"{name!r}")
    cache = Path(folder) if folder is not None else Path(pooch.os_cache("calibrank")) / name
    # The archive stays in the cache beside its unpacked files, so a second call downloads nothing.
    try:
        archive = pooch.retrieve(
            source.url,
            source.known_hash,
            path=cache,
            # The bar needs tqdm, which pooch does not install.
            progressbar=find_spec("tqdm") is not None,
        )
    except ValueError as error:
        raise DataError(
            source.url, "be the archive with the known hash", f"a different file: {error}"
        ) from None
    return unpack(Path(archive), cache / "files")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive into a folder, whole or not at all, unless that was done before."""
    manifest = folder.with_name(f"{folder.name}.json")
    if _is_complete(folder, manifest):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Neither a killed process nor one that unpacks at the same time can leave half a folder: all
    # is unpacked elsewhere, and renamed.
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        unpacked = Path(temporary) / folder.name
        _extract(archive, unpacked)
        sizes = _sizes(unpacked)
        if folder.exists():
            folder.rename(Path(temporary) / "incomplete")
        unpacked.rename(folder)
    write_atomic(manifest, json.dumps(sizes, indent=1))
    return folder


def _extract(archive: Path, folder: Path) -> None:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(folder)  # noqa: S202  (zipfile never leaves the folder)
            return
        with tarfile.open(archive) as tar:
            # Refuses links, devices, and names that lead out of the folder.
            tar.extractall(folder, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(
            archive, "be a zip or tar archive of files", error, "Delete it to try again."
        ) from None


def _is_complete(folder: Path, manifest: Path) -> bool:
    """Whether every file of the manifest is in the folder, in its full size."""
    try:
        expected = json.loads(manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(expected) and _sizes(folder) == expected


def _sizes(folder: Path) -> dict[str, int]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
