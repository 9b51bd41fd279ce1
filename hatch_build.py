"""Build hook: compile the C loops if there are a C compiler and Python's headers.

Otherwise the wheel is pure Python: calibrank then runs the same loops in NumPy, slower.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE = "src/calibrank/_internal/native.c"
# An extension module for the stable ABI of Python, which Windows gives no name of its own.
SUFFIX = ".pyd" if sys.platform == "win32" else ".abi3.so"
LIBRARY = f"src/calibrank/_internal/_loops{SUFFIX}"
FLAGS = [
    "-O3",
    "-shared",
    "-fvisibility=hidden",
    # Comparisons and minima of floats only vectorise with these assumptions. The loops do not
    # rely on what they give up: NaN and infinity are detected by their bits.
    "-fno-trapping-math",
    "-fno-math-errno",
    "-ffinite-math-only",
    "-fno-signed-zeros",
    # Where a processor has it, a product and a sum are fused into one operation, which is faster
    # and rounds once. `native_maps.h` says why a single score still gets the digits of a batch.
    "-ffp-contract=fast",
]
if sys.platform == "win32":
    # Windows has neither position-independent code nor a separate mathematics library. Its gcc
    # would leave a dependency on its own runtime library, which users do not have.
    PLATFORM_FLAGS = ["-static-libgcc", "-DMS_WIN64"]
    LIBRARIES = [f"-L{Path(sys.base_prefix, 'libs')}", "-lpython3"]
else:
    PLATFORM_FLAGS = ["-fPIC"]
    LIBRARIES = ["-lm"]
if sys.platform == "darwin":
    # Python's own functions are found when the module is loaded.
    LIBRARIES += ["-undefined", "dynamic_lookup"]


class LoopsHook(BuildHookInterface):
    """Put the module into the wheel, which then fits one platform and Python 3.11 or newer."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before a wheel, editable or not, is assembled."""
        root = Path(self.root)
        problem = build(root / SOURCE, root / LIBRARY)
        if problem:
            (root / LIBRARY).unlink(missing_ok=True)
            self.app.display_warning(
                f"calibrank: {problem}, so large tables will be pooled by NumPy, which is slower"
            )
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{_platform()}"


def build(source: Path, library: Path) -> str:
    """Compile the module and move it into place atomically; return what went wrong, or ""."""
    compiler = _compiler()
    if not compiler:
        return "there is no C compiler"
    headers = Path(sysconfig.get_paths()["include"])
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no stable ABI (it is free-threaded, or not CPython)"
    if not (headers / "Python.h").exists():
        return f"Python's headers are not in {headers}"
    partial = library.with_suffix(f".{os.getpid()}.part")
    # `native.py` compares this checksum with the sources, so that a stale module is never used.
    sources = [source, *sorted(source.parent.glob("native*.h"))]
    checksum = zlib.crc32(b"".join(file.read_bytes() for file in sources)) & 0x7FFFFFFF
    define = f"-DCALIBRANK_SOURCE_CHECKSUM={checksum}"
    flags = [*FLAGS, *PLATFORM_FLAGS, define, f"-I{headers}"]
    command = [*compiler, *flags, "-o", str(partial), str(source), *LIBRARIES]
    try:
        result = subprocess.run(command, check=False)  # noqa: S603  (our own command)
        if result.returncode == 0:
            partial.replace(library)
    except OSError as error:
        return f"{compiler[0]} cannot be run ({error})"
    finally:
        partial.unlink(missing_ok=True)
    return "" if result.returncode == 0 else f"{compiler[0]} failed on {source.name}"


def _compiler() -> list[str]:
    """The command in CC, else the first compiler on the path, else nothing."""
    configured = os.environ.get("CC", "")
    if configured:
        # A backslash separates folders on Windows; elsewhere it quotes the next character.
        return shlex.split(configured, posix=sys.platform != "win32")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return []


def _platform() -> str:
    """The platform tag: of this very platform, or of the oldest macOS that is compiled for.

    manylinux tags promise more than is checked here; auditwheel checks and adds them.
    """
    if sys.platform == "darwin":
        return _macos_platform()
    for tag in sys_tags():
        if "manylinux" not in tag.platform and "musllinux" not in tag.platform:
            return tag.platform
    raise RuntimeError("packaging knows no tag of this platform")


def _macos_platform() -> str:
    """The compiler follows MACOSX_DEPLOYMENT_TARGET, so the tag does too."""
    oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or platform.mac_ver()[0]
    major, minor = (*oldest.split("."), "0")[:2]
    # Since macOS 11 tags name the major version alone.
    if int(major) >= 11:
        minor = "0"
    return f"macosx_{major}_{minor}_{platform.machine()}"
