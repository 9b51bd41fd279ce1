"""The maps of `docs/json-vectors.json`: one per basis, curve and term, and one with all terms."""

import json
from pathlib import Path
from typing import Any

from calibrank.export import to_json
from calibrank.maps import CalibrationMap, LevelTerm, PiecewiseCurve, PositionTerm, SmoothTerm
from calibrank.maps.format import parse

FOLDER = Path(__file__).parent
VECTORS = FOLDER.parents[1] / "docs" / "json-vectors.json"


def version_1() -> list[dict[str, Any]]:
    """Maps that version 1 saved, with the probabilities that it predicted."""
    return json.loads((FOLDER / "version_1.json").read_text(encoding="utf-8"))


def documents() -> list[dict[str, Any]]:
    """What the page about the format shows."""
    fitted = [parse("version 1", json.dumps(each["map"])) for each in version_1()]
    fitted.append(CalibrationMap(fitted[1].curve, fitted[1].record, _terms()))
    return [json.loads(to_json(each)) for each in fitted]


def _terms() -> tuple[LevelTerm, SmoothTerm, PositionTerm]:
    level = LevelTerm(
        ("country", "is_new"),
        (("de",), ("7",), ("de", "true")),
        (0.5, -0.25, 1.0),
        (1.0, 1.0, 1.0),
        (0.1, 0.1, 0.2),
        (100, 50, 20),
        (0.5, 0.25),
        typical=-0.125,
    )
    curve = PiecewiseCurve((0.0, 2.0), (-1.0, 0.5), (0.5, 0.25), (0.1, 0.1), (0.0, 0.0))
    by_rank = SmoothTerm("rank", (1.0, 5.0), (0.25, -0.25), (0.1, 0.1))
    smooth = SmoothTerm("price", (0.0, 1.0, 4.0), (0.5, -0.5, 0.25), (0.1, 0.1, 0.1))
    return level, smooth, PositionTerm("rank", 5, curve, by_rank)


def write_vectors() -> int:
    """Write the page's vectors; returns how many maps there are."""
    found = documents()
    lines = ",\n".join([json.dumps(each) for each in found])
    VECTORS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return len(found)
