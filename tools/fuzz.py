"""Fuzz calibrank: Hypothesis draws damaged files, options and rows until the time is over.

Each target runs in a process of its own, so that a crash of native code is caught too; the C loops
run in a build with AddressSanitizer and UndefinedBehaviorSanitizer. Failing input is shrunk and
printed, and what a crashed process was given last is kept in `build/fuzz`.

    python tools/fuzz.py --seconds 600
    python tools/fuzz.py --seconds 60 --target maps --seed 7
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "fuzz"
TARGETS = ("maps", "summaries", "models", "csv", "parquet", "options", "native", "loops")
# Examples per round; a round with another seed follows until the time is over.
EXAMPLES = 25


def main() -> int:
    """Run every target for its share of the time; return how many of them failed."""
    options = _options()
    if options.here:
        return run_here(options.here, options.seconds, options.seed)
    names = options.target or TARGETS
    BUILD.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not run_apart(name, options.seconds / len(names), options)]
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return len(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this target")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round")
    parser.add_argument("--here", choices=TARGETS, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_apart(name: str, seconds: float, options: argparse.Namespace) -> bool:
    """Run one target in a process of its own; report what it printed if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    if name in {"native", "loops"}:
        sanitized = sanitized_package()
        if not sanitized:
            print(f"{name}: skipped, there is no C compiler with sanitizers")
            return True
        environment |= sanitized
    command = [sys.executable, __file__, "--here", name]
    command += ["--seconds", str(seconds), "--seed", str(options.seed)]
    log = BUILD / f"{name}.log"
    with log.open("wb") as output:
        result = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if result.returncode == 0:
        print(f"{name}: {lines[-1] if lines else 'no output'}")
        return True
    print("\n".join(lines[-60:]))
    print(f"{name}: FAILED with exit code {result.returncode}; see {log} and {BUILD / name}")
    return False


def run_here(name: str, seconds: float, seed: int) -> int:
    """Run rounds of one target in this process until the time is over or one fails."""
    import hypothesis

    sys.path.insert(0, str(ROOT))
    from tools import fuzz_targets

    end = time.monotonic() + seconds
    rounds = 0
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    target = settings(getattr(fuzz_targets, name))
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    while time.monotonic() < end:
        hypothesis.seed(seed + rounds)(target)()
        rounds += 1
    print(f"{rounds * EXAMPLES} examples, seeds {seed} to {seed + rounds - 1}")
    return 0


def sanitized_package() -> dict[str, str]:
    """Copy the package with a sanitized module; return the environment that loads it."""
    package = BUILD / "sanitized" / "calibrank"
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(
        ROOT / "src" / "calibrank", package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    sys.path.insert(0, str(ROOT))
    import hatch_build

    sanitizers = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -g"
    os.environ["CC"] = f"gcc {sanitizers}"
    source, library = Path(hatch_build.SOURCE), Path(hatch_build.LIBRARY)
    problem = hatch_build.build(
        package / "_internal" / source.name, package / "_internal" / library.name
    )
    if problem:
        print(f"native: {problem}")
        return {}
    # Python itself is not sanitized, so the runtime has to be loaded before it.
    query = ["gcc", "-print-file-name=libasan.so"]
    found = subprocess.run(query, capture_output=True, text=True, check=True)
    return {
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps memory until it exits
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(ROOT)]),
        "PYTHONMALLOC": "malloc",
    }


if __name__ == "__main__":
    sys.exit(main())
