"""The JavaScript readers on the documentation pages evaluate every kind of map."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.building import DOCS

# Prints, for each documented map, the probabilities that the reader computes,
# or why it refuses the map.
SCRIPT = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { reader } = await import(pathToFileURL(process.argv[1]));
const documents = JSON.parse(readFileSync(process.argv[2], "utf8"));
const results = documents.map(({ map, vectors }) => {
  let probability;
  try { probability = reader(map); } catch (error) { return error.message; }
  return vectors.map(({ score, segments, features }) =>
    probability(score, { ...segments, ...features }));
});
console.log(JSON.stringify(results));
let refused = 0;
for (const { map, vectors } of documents)
  for (const invalid of [NaN, Infinity, 2e30, undefined, null, true, "1", [1]])
    try { reader(map)(invalid, { ...vectors[0].segments, ...vectors[0].features }); }
    catch { refused += 1; }
console.log(refused);
"""
WITH_COLUMNS = ("grouped", "additive", "top")


def node() -> str:
    """Node.js on the path, or the one that Playwright brings."""
    found = shutil.which("node")
    if found is None and find_spec("playwright"):
        bundled = Path(find_spec("playwright").origin).parent / "driver" / "node"
        found = str(bundled) if bundled.exists() else None
    if found is None:
        pytest.skip("there is no Node.js, nor Playwright's")  # the dev group has Playwright
    return found


def evaluated(reader: str) -> tuple[list[dict], list, int]:
    """The documented maps, what the reader gives for each, and how many bad scores it refused."""
    vectors = DOCS / "json-vectors.json"
    command = [node(), "--input-type=module", "-e", SCRIPT, str(DOCS / reader), str(vectors)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results, refused = done.stdout.splitlines()
    documents = json.loads(vectors.read_text(encoding="utf-8"))
    return documents, json.loads(results), int(refused)


def agree(document: dict, probabilities: list[float]) -> None:
    expected = [vector["probability"] for vector in document["vectors"]]
    assert probabilities == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_reader_agrees_with_the_test_vectors_of_maps_of_the_score() -> None:
    documents, results, refused = evaluated("map-reader.mjs")
    for document, probabilities in zip(documents, results, strict=True):
        kind = document["map"]["kind"]
        if kind in WITH_COLUMNS:
            assert probabilities == f"map-reader-columns.mjs reads {kind} maps"
        else:
            agree(document, probabilities)
    assert refused == 8 * len(documents)


def test_the_reader_of_columns_agrees_with_all_test_vectors() -> None:
    documents, results, refused = evaluated("map-reader-columns.mjs")
    assert {document["map"]["kind"] for document in documents} >= set(WITH_COLUMNS)
    for document, probabilities in zip(documents, results, strict=True):
        agree(document, probabilities)
    assert refused == 8 * len(documents)


@pytest.mark.parametrize("reader", ["map-reader.mjs", "map-reader-columns.mjs"])
def test_the_readers_are_short(reader: str) -> None:
    lines = (DOCS / reader).read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.startswith("//")]
    assert len(code) <= 66
