"""Start of the command line: help of every command against `import numpy`, in processor time.

python benchmarks/startup.py [--repeats 7]
"""

import argparse
import resource
import subprocess
import sys

from calibrank.cli.app import COMMANDS

LARGEST_RATIO = 2


def seconds(*arguments: str, repeats: int) -> float:
    """Least processor time of a process: what else runs on the machine only adds to it."""
    found = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(  # noqa: S603  (our own commands)
            [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    limit = seconds("-c", "import numpy", repeats=repeats)
    print(f"{'import numpy':28} {limit:.3f} s")
    ratios = {}
    for name in COMMANDS:
        spent = seconds("-m", "calibrank", *name.split(), "--help", repeats=repeats)
        ratios[name] = spent / limit
        title = f"calibrank {name} --help".replace("  ", " ")
        print(f"{title:28} {spent:.3f} s, {ratios[name]:.2f} times")
    worst = max(ratios.values())
    print(f"Worst: {worst:.2f} times; allowed: {LARGEST_RATIO}.")
    sys.exit(worst > LARGEST_RATIO)


if __name__ == "__main__":
    main()
