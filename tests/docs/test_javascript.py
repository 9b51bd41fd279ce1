"""The JavaScript reader of the documentation evaluates every kind of curve and term."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.segment_keys import encode
from calibrank.export import to_json
from calibrank.maps import LevelTerm
from tests.docs.building import DOCS
from tests.maps.samples import gaussian_map, level_term, map_of, position_term, smooth_term

# Prints, for each map, the probabilities of its vectors and those of its invalid rows.
SCRIPT = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { reader } = await import(pathToFileURL(process.argv[1]));
const documents = JSON.parse(readFileSync(process.argv[2], "utf8"));
const results = documents.map(({ map, vectors, invalid }) => {
  const probability = reader(map);
  const found = vectors.map(({ score, columns }) => probability(score, columns));
  const none = invalid.map(({ score, columns }) => probability(score, columns));
  const { columns } = vectors[0];
  for (const wrong of [NaN, Infinity, -Infinity, undefined, true, "1", [1]])
    none.push(probability(wrong, columns));
  if (columns) none.push(probability(vectors[0].score));
  return [found, none];
});
console.log(JSON.stringify(results));
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


def require_agreement(documents: list[dict[str, Any]], path: Path) -> None:
    """Check that the reader gives the probabilities of all vectors, and null for invalid rows."""
    command = [node(), "--input-type=module", "-e", SCRIPT, str(DOCS / "map-reader.mjs"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for document, (found, none) in zip(documents, json.loads(done.stdout), strict=True):
        expected = [vector["probability"] for vector in document["vectors"]]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert len(none) >= len(document["invalid"]) + 7
        assert set(none) == {None}


def test_the_reader_agrees_with_the_documented_vectors() -> None:
    path = DOCS / "json-vectors.json"
    require_agreement(json.loads(path.read_text(encoding="utf-8")), path)


def test_the_reader_agrees_with_every_combination_of_terms(tmp_path: Path) -> None:
    terms = [level_term("country", "city", typical=-0.4), smooth_term("price"), position_term()]
    curves = [gaussian_map().curve, cr.Isotonic().fit([0.0, 1, 2, 3], [0, 1, 0, 1]).curve]
    documents = []
    for curve in curves:
        for chosen in range(8):
            some = [term for place, term in enumerate(terms) if chosen >> place & 1]
            documents.append(json.loads(to_json(map_of(curve, *some))))
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(documents), encoding="utf-8")
    require_agreement(documents, path)


def test_the_reader_writes_levels_as_python_does(tmp_path: Path) -> None:
    document = json.loads(to_json(map_of(gaussian_map().curve, level_term("key", typical=9.0))))
    row = {"score": 0.5, "columns": {"key": 7}, "probability": None}
    fitted = map_of(gaussian_map().curve, level_term("key", typical=9.0))
    row["probability"] = fitted.predict(0.5, {"key": 7.0})
    document["vectors"] = [row]
    document["invalid"] = [{"score": 0.5, "columns": {"key": value}} for value in (0.5, 1e300)]
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps([document]), encoding="utf-8")
    require_agreement([document], path)


# A value of a level in JavaScript, and one in Python that has its probability; None has none.
KEYS: dict[str, Any] = {
    "'true'": "true",
    "true": True,
    "false": False,
    "1": 1,
    "3.0": 3.0,
    "-0": 0,
    "'NaN'": "NaN",
    "'(missing)'": "(missing)",
    "'null'": "null",
    "''": "",
    "'__proto__'": "__proto__",
    "'constructor'": "constructor",
    "'e\\u0301'": "e\u0301",
    "'\\u00e9'": "\u00e9",
    "'never seen'": "never seen",
    **dict.fromkeys(["NaN", "Infinity", "0.5", "1e21", "2 ** 53", "null", "undefined"]),
    **dict.fromkeys(["new Date(0)", "{}", "[]", "['1']", "[1]", "new String('1')", "3n"]),
    **dict.fromkeys(["() => 1", "Symbol('1')", "new Number(1)", "new Boolean(true)"]),
}
KEYS_SCRIPT = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { reader } = await import(pathToFileURL(process.argv[1]));
const probability = reader(JSON.parse(readFileSync(process.argv[2], "utf8")));
const absent = [{}, JSON.parse('{"constructor": "1"}')];
const rows = [VALUES].map((value) => Object.fromEntries([["__proto__", value]]));
console.log(JSON.stringify([...rows, ...absent].map((row) => probability(0.5, row))));
"""


def test_values_of_every_type_of_javascript_are_the_levels_of_python(tmp_path: Path) -> None:
    known = [value for value in KEYS.values() if value not in (None, "never seen")]
    keys = tuple([(key,) for key in encode("__proto__", known).values])
    count = len(keys)
    intercepts = tuple(np.linspace(-2, 2, count).tolist())
    # Of a column whose name every object has.
    term = LevelTerm(
        ("__proto__",), keys, intercepts, (1.0,) * count, (0.1,) * count, (9,) * count, (0.5,), 5.0
    )
    fitted = map_of(gaussian_map().curve, term)
    fitted.save(tmp_path / "map.json")
    script = KEYS_SCRIPT.replace("VALUES", ", ".join(KEYS))
    command = [node(), "--input-type=module", "-e", script, str(DOCS / "map-reader.mjs")]
    done = subprocess.run(
        [*command, str(tmp_path / "map.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found[-2:] == [None, None]
    for (name, value), probability in zip(KEYS.items(), found[:-2], strict=True):
        if value is None:
            assert probability is None, name
        else:
            expected = fitted.predict(0.5, {"__proto__": value})
            assert probability == pytest.approx(expected, rel=1e-9), name


def test_the_reader_is_short() -> None:
    lines = (DOCS / "map-reader.mjs").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith("//")]) <= 100
    assert max(map(len, lines)) <= 100
