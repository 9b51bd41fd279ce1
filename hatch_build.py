"""Builds the loops in C where there is a compiler; without one the package does the same with numpy, slower."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, LIBRARY = "src/calibrank/loops.c", "src/calibrank/libcalibrank.so"
FLAGS = ["-O3", "-shared", "-fPIC", "-fvisibility=hidden"]
FLAGS += ["-fno-trapping-math", "-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros"]  # or little is vectorised


class Loops(BuildHookInterface):
    """A wheel with the library in it: for one kind of machine, and any Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is put together, an editable one too."""
        root = Path(self.root)
        if not build(root / SOURCE, root / LIBRARY):
            self.app.display_warning("calibrank: no C compiler, so large tables will be summed by numpy, slower")
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build(source: Path, library: Path) -> bool:
    """Whether the library was built, whole or not at all."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)
    library.unlink(missing_ok=True)
    if compiler is None:
        return False
    part = library.with_suffix(".part")
    done = subprocess.run([compiler, *FLAGS, "-o", part, source, "-lm"], check=False)  # noqa: S603  (our own command)
    if done.returncode:
        part.unlink(missing_ok=True)
        return False
    part.replace(library)
    return True
