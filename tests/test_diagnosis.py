"""What a diagnosis attaches to a map; the checks are tested through the command."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrank as cr
from calibrank.diagnosis.diagnose import attach_sensitivity
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def test_the_band_of_a_map_with_terms_is_that_of_its_curve(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    country = rng.choice(["NL", "DE"], 4_000)
    propensity = rng.uniform(0.3, 1, 4_000)
    liked = rng.random(4_000) < 1 / (1 + np.exp(2 - scores - (country == "NL")))
    labels = (liked & (rng.random(4_000) < propensity)).astype(float)
    table = {"score": scores, "label": labels, "chance": propensity}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = Columns("score", "label", cr.ips, propensity="chance")
    aggregated = aggregate(Table.find(str(tmp_path / "log.parquet")), columns, Rules(skip=False))
    evidence = cr.ips(labels, propensity)
    model = cr.Platt() + cr.Level("country")
    fitted = model.fit(scores, evidence, {"country": country})
    found = attach_sensitivity(fitted, cr.Platt(), aggregated, columns)
    assert found.terms == fitted.terms
    alone = attach_sensitivity(cr.Platt().fit(scores, evidence), cr.Platt(), aggregated, columns)
    assert found.record.sensitivity == alone.record.sensitivity
    low, high = found.band(scores[:50], {"country": country[:50]})
    probabilities = found.predict(scores[:50], {"country": country[:50]})
    assert (low < probabilities).all()
    assert (probabilities < high).all()
