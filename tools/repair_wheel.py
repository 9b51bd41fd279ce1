"""Give the wheel of this machine the manylinux tag that auditwheel finds it to deserve."""

import subprocess
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Replace each Linux wheel in the folder by its repaired version; others stay as they are."""
    for wheel in folder.glob("*-linux_*.whl"):
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel]
        subprocess.run(command, check=True)
        wheel.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
