"""Check that a tag may be released: its version, changelog and addresses agree.

Needs nothing but Python 3.11: `python3 tools/check_release.py v0.1.0 https://host/owner/calibrank`.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str, repository: str) -> list[str]:
    """Everything that stands in the way of a release under this tag, from this repository."""
    found = []
    source = (ROOT / "src" / "calibrank" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if version is None or tag != f"v{version[1]}":
        found.append(f"the tag must be v followed by __version__, got {tag}")
    number = re.escape(tag.removeprefix("v"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {number} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md must have a dated section for {tag}")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if not re.search(rf"^version: {number}$", citation, re.MULTILINE):
        found.append(f"CITATION.cff must name version {tag.removeprefix('v')}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["urls"].get("Source") != repository:
        found.append(f"project.urls in pyproject.toml must have Source = {repository!r}")
    return found


if __name__ == "__main__":
    found = problems(*sys.argv[1:3])
    for problem in found:
        print(problem, file=sys.stderr)
    sys.exit(1 if found else 0)
