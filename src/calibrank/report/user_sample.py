"""A sample of users with their best items, small enough to travel inside the page."""

import json
from typing import Any

import numpy as np

from calibrank._validation import Floats
from calibrank.report.ledger import Coded, Ledger
from calibrank.report.thresholds import list_order

USERS = 3000
ITEMS = 20
LARGEST = 1_400_000
"""Characters of JSON: more, and fewer users come along."""
LONGEST_NAME = 160


def sample_users(ledger: Ledger, probabilities: Floats, seed: int = 0) -> dict[str, Any] | None:
    """Some users drawn at random, each with the top of the list; None where there are no users."""
    if ledger.users is None:
        return None
    count = len(ledger.users.names)
    drawn = np.random.default_rng(seed).permutation(count)
    wanted = min(USERS, count)
    while True:
        content = _content(ledger, ledger.users, probabilities, np.sort(drawn[:wanted]))
        if wanted == 1 or len(json.dumps(content)) <= LARGEST:
            return content
        wanted //= 2


def _content(ledger: Ledger, users: Coded, probabilities: Floats, chosen: Any) -> dict[str, Any]:
    order, place, starts = list_order(probabilities, users.codes)
    listed = users.counts()
    ends = starts + listed
    rows = [order[starts[user] : min(ends[user], starts[user] + ITEMS)] for user in chosen]
    names: dict[int, int] = {}
    people = [
        _person(ledger, users, probabilities, user, top, names)
        for user, top in zip(chosen, rows, strict=True)
    ]
    for person, user in zip(people, chosen, strict=True):
        person["listed"] = int(listed[user])
    items = [] if ledger.items is None else [shortened(ledger.items.names[code]) for code in names]
    return {
        "people": people,
        "items": items,
        "users": len(users.names),
        "most": ITEMS,
        "deepest": int(place.max()) + 1,
    }


def _person(
    ledger: Ledger, users: Coded, probabilities: Floats, user: int, rows: Any, names: dict[int, int]
) -> dict[str, Any]:
    items = None if ledger.items is None else ledger.items.codes[rows].tolist()
    return {
        "name": shortened(users.names[user]),
        "scores": [float(f"{score:.5g}") for score in ledger.scores[rows]],
        "probabilities": [float(f"{value:.6g}") for value in probabilities[rows]],
        "labels": ledger.labels[rows].astype(int).tolist(),
        "items": None if items is None else [names.setdefault(item, len(names)) for item in items],
    }


def shortened(name: str) -> str:
    """A name as shown: one longer than a line or two is cut, visibly."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
