"""What a diagnosis attaches to a map; the checks are tested through the command."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.diagnosis.diagnose import attach_sensitivity
from calibrank.model import Model
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.terms import TermSpec


@pytest.mark.parametrize(
    "terms", [[cr.Level("country")], [cr.Level("country"), cr.Smooth("price")]]
)
def test_the_band_of_a_map_with_terms_is_as_far_around_its_curve(
    tmp_path: Path, terms: list[TermSpec]
) -> None:
    """The curve is steeper within countries than over all of them; base rates stay."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    country = rng.choice(["NL", "DE"], 4_000)
    propensity = rng.uniform(0.3, 1, 4_000)
    liked = rng.random(4_000) < 1 / (1 + np.exp(2 - scores - 3 * (country == "NL")))
    labels = (liked & (rng.random(4_000) < propensity)).astype(float)
    table = {"score": scores, "label": labels, "chance": propensity}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = Columns("score", "label", cr.ips, propensity="chance")
    aggregated = aggregate(Table.find(str(tmp_path / "log.parquet")), columns, Rules(skip=False))
    evidence = cr.ips(labels, propensity)
    alone = attach_sensitivity(cr.Platt().fit(scores, evidence), cr.Platt(), aggregated, columns)
    given = {"country": country, "price": rng.normal(size=4_000)}
    model = Model(cr.Platt(), tuple(terms))
    if len(terms) == 1:
        found = model.fit_sums(alone, model.sums(scores, evidence, given))
    else:
        found = model.fit_rows(alone, scores, evidence, given)
    before, after = alone.record.sensitivity, found.record.sensitivity
    assert after.alternatives == before.alternatives
    at = np.array(before.scores)
    assert found.curve.log_odds(at[-1:]) > alone.curve.log_odds(at[-1:]) + 0.1
    for name in ("low", "high"):
        distance = np.array(getattr(before, name)) - alone.curve.log_odds(at)
        np.testing.assert_allclose(getattr(after, name), found.curve.log_odds(at) + distance)
    low, high = found.band(scores, given)
    probabilities = found.predict(scores, given)
    assert (low < probabilities).all()
    assert (probabilities < high).all()
