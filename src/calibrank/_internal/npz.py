"""Write and read arrays in NumPy's npz format as plain data: bounded in size, with a digest.

`np.load` believes the sizes that a file claims and allocates them, and it checks the parts of a
file only as far as they are read. Here every part is stored without compression, so that no claim
can exceed the size of the file, and the digest covers the name, type, shape and content of all.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.atomic import write_atomic

if TYPE_CHECKING:
    from zipfile import ZipFile

Arrays = dict[str, npt.NDArray[Any]]

_DIGEST = "digest"
_SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY\x01\x00"
# What `np.save` writes for arrays of numbers or text in the order of C. Parsing anything more
# general would run Python's own parser on an untrusted file.
_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufU][0-9]{1,4})', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,18},? ?)*)\), \} *\n"
)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays and their digest to a file, atomically."""
    content: Arrays = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    # `ascontiguousarray` gives a number one dimension; the shape is part of the digest.
    content = {name: values.reshape(np.shape(arrays[name])) for name, values in content.items()}
    memory = io.BytesIO()
    saved: dict[str, Any] = {**content, _DIGEST: np.array(_digest(content))}
    np.savez(memory, **saved)
    write_atomic(path, memory.getvalue())


def read_arrays(path: Path, largest: int) -> Arrays:
    """Read a file of at most `largest` bytes that `write_arrays` wrote.

    Anything else raises a `ValueError` that says what is wrong with it.
    """
    # Slow to import, and seldom needed.
    import zlib  # noqa: PLC0415  (see above)
    from zipfile import BadZipFile, ZipFile  # noqa: PLC0415  (see above)

    size = path.stat().st_size
    if size > largest:
        raise ValueError(f"it has {size:,} bytes, more than the {largest:,} that one can have")
    try:
        with ZipFile(io.BytesIO(path.read_bytes())) as file:
            arrays = _read_members(file)
    # What zipfile raises about damaged, encrypted or unknown kinds of files.
    except (BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, zlib.error) as error:
        raise ValueError(str(error) or "it ends too early") from None
    digest = arrays.pop(_DIGEST, None)
    if digest is None:
        raise ValueError("it holds no digest")
    if str(digest) != _digest(arrays):
        raise ValueError("it does not match its digest: it was changed after it was saved")
    return arrays


def _read_members(file: ZipFile) -> Arrays:
    arrays: Arrays = {}
    for member in file.infolist():
        name = member.filename.removesuffix(_SUFFIX)
        if name in arrays or name == member.filename:
            raise ValueError(f"it holds {member.filename!r} where one array of each name is due")
        if member.compress_type != 0 or member.compress_size != member.file_size:
            raise ValueError(f"{name} is compressed")
        arrays[name] = _parse(name, file.read(member))
    return arrays


def _parse(name: str, content: bytes) -> npt.NDArray[Any]:
    """The array in a file of NumPy's npy format."""
    start = len(_MAGIC) + 2
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(content[start:end])
    if not content.startswith(_MAGIC) or header is None:
        raise ValueError(f"{name} is not an array of numbers")
    dtype = np.dtype(header[1].decode())
    shape = [int(length) for length in re.findall(rb"[0-9]+", header[2])]
    # `math.prod` of Python's integers does not overflow.
    if math.prod(shape) * dtype.itemsize != len(content) - end:
        raise ValueError(f"{name} has another size than its header says")
    # A copy: an array over the bytes of the file could not be written to.
    return np.frombuffer(content, dtype, offset=end).reshape(shape).copy()


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
