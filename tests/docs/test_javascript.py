"""The JavaScript reader on the documentation pages evaluates every kind of map."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.building import DOCS

# Prints, for each documented map, the probabilities that the reader computes.
SCRIPT = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { reader } = await import(pathToFileURL(process.argv[1]));
const documents = JSON.parse(readFileSync(process.argv[2], "utf8"));
const results = documents.map(({ map, vectors }) => {
  const probability = reader(map);
  return vectors.map(({ score }) => probability(score));
});
console.log(JSON.stringify(results));
let refused = 0;
for (const invalid of [NaN, Infinity, 2e30, undefined])
  try { reader(documents[0].map)(invalid); } catch { refused += 1; }
console.log(refused);
"""


def node() -> str:
    """Node.js on the path, or the one that Playwright brings."""
    found = shutil.which("node")
    if found is None and find_spec("playwright"):
        bundled = Path(find_spec("playwright").origin).parent / "driver" / "node"
        found = str(bundled) if bundled.exists() else None
    if found is None:
        pytest.skip("there is no Node.js, nor Playwright's")  # the dev group has Playwright
    return found


def test_the_reader_agrees_with_the_test_vectors() -> None:
    vectors = DOCS / "json-vectors.json"
    command = [node(), "--input-type=module", "-e", SCRIPT]
    command += [str(DOCS / "map-reader.mjs"), str(vectors)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results, refused = done.stdout.splitlines()
    documents = json.loads(vectors.read_text(encoding="utf-8"))
    for document, probabilities in zip(documents, json.loads(results), strict=True):
        expected = [vector["probability"] for vector in document["vectors"]]
        assert probabilities == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert refused == "4"


def test_the_reader_is_short() -> None:
    lines = (DOCS / "map-reader.mjs").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.startswith("//")]
    assert len(code) <= 65
