"""Install the built wheel, and the sdist, in clean environments that have no compiler."""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = "Scripts" if os.name == "nt" else "bin"
WITHOUT_LOOPS = (
    "from calibrank import Platt; from calibrank._internal import native; "
    "assert not native.READY; print('NumPy')"
)


def main(folder: Path) -> None:
    """Check the newest wheel of this platform and the sdist."""
    (wheel,) = folder.glob("*.whl")
    if "-cp311-abi3-" not in wheel.name or "-linux_" in wheel.name:
        raise SystemExit(f"the wheel must fit Python 3.11 and newer, got {wheel.name}")
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as temporary:
        python = _environment(Path(temporary) / "wheel", wheel)
        _run(python, ROOT / "tools" / "check_wheel.py")
        python = _environment(Path(temporary) / "sdist", sdist)
        _run(python, "-c", WITHOUT_LOOPS)


def _environment(path: Path, distribution: Path) -> Path:
    """Create an environment with a distribution and return its interpreter."""
    venv.create(path, with_pip=True)
    python = path / FOLDER / "python"
    constraints = ROOT / "constraints.txt"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    _run(python, *install, "--constraint", constraints, distribution)
    return python


def _run(python: Path, *arguments: str | Path) -> None:
    """Run Python with only its own environment's programs on the path: no compiler is found."""
    environment = {**os.environ, "PATH": str(python.parent), "CC": ""}
    environment.pop("PYTHONPATH", None)
    command = [python, *arguments]
    subprocess.run(command, check=True, env=environment, cwd=python.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
