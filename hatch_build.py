"""Build hook: compile the C loops if there is a C compiler.

Without a compiler the wheel is pure Python: calibrank then runs the same loops in NumPy, slower.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE = "src/calibrank/_internal/native.c"
LIBRARY = "src/calibrank/_internal/libcalibrank.so"
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
    # and rounds once. `_native_maps.h` says why a single score still gets the digits of a batch.
    "-ffp-contract=fast",
]
# Windows has neither position-independent code nor a separate mathematics library. Its gcc would
# leave a dependency on its own runtime library, which users do not have.
PLATFORM_FLAGS = ["-static-libgcc"] if sys.platform == "win32" else ["-fPIC"]
LIBRARIES = [] if sys.platform == "win32" else ["-lm"]


class NativeLibraryHook(BuildHookInterface):
    """Put the compiled library into the wheel, which then fits one platform and any Python."""

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
        build_data["tag"] = f"py3-none-{_platform()}"


def build(source: Path, library: Path) -> str:
    """Compile the library and move it into place atomically; return what went wrong, or ""."""
    compiler = _compiler()
    if not compiler:
        return "there is no C compiler"
    partial = library.with_suffix(f".{os.getpid()}.part")
    # The loader compares this checksum with the sources, so that a stale library is never used.
    sources = [source, *sorted(source.parent.glob("native*.h"))]
    checksum = zlib.crc32(b"".join(file.read_bytes() for file in sources)) & 0x7FFFFFFF
    define = f"-DCALIBRANK_SOURCE_CHECKSUM={checksum}"
    flags = [*FLAGS, *PLATFORM_FLAGS, define]
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
