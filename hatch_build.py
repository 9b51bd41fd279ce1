"""Builds the loops in C where there is a compiler; without one the package does the same with numpy, slower."""

import os
import shlex
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE, LIBRARY = "src/calibrank/_native.c", "src/calibrank/libcalibrank.so"
FLAGS = ["-O3", "-shared", "-fPIC", "-fvisibility=hidden"]
FLAGS += [
    "-fno-trapping-math",
    "-fno-math-errno",
    "-ffinite-math-only",
    "-fno-signed-zeros",
]  # or little is vectorised


class Loops(BuildHookInterface):
    """A wheel with the library in it: for one kind of machine, and any Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is put together, an editable one too."""
        root = Path(self.root)
        wrong = build(root / SOURCE, root / LIBRARY)
        if wrong:
            (root / LIBRARY).unlink(missing_ok=True)
            self.app.display_warning(
                f"calibrank: {wrong}, so large tables will be summed by numpy, slower"
            )
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        plain = (
            tag.platform
            for tag in sys_tags()
            if "manylinux" not in tag.platform and "musllinux" not in tag.platform
        )
        build_data["tag"] = f"py3-none-{next(plain)}"


def build(source: Path, library: Path) -> str:
    """Put the library in its place, whole or not at all; what went wrong, if anything."""
    named = shlex.split(os.environ.get("CC", ""))
    compiler = named or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])
    if not compiler:
        return "there is no C compiler"
    part = library.with_suffix(f".{os.getpid()}.part")
    # The library says which loops it was built from: one that is older than its source is not used.
    digest_of = f"-DCALIBRANK_LOOPS={zlib.crc32(source.read_bytes()) & 0x7FFFFFFF}"
    try:
        command = [*compiler, *FLAGS, digest_of, "-o", str(part), str(source), "-lm"]
        done = subprocess.run(command, check=False)  # noqa: S603  (our own command)
        if done.returncode == 0:
            part.replace(library)
    except OSError as error:
        return f"{compiler[0]} cannot be run ({error})"
    finally:
        part.unlink(missing_ok=True)
    return "" if done.returncode == 0 else f"{compiler[0]} failed on {source.name}"
