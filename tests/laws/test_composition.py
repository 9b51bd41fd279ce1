"""Composition is a law: all pairs of parts agree with an independent reader, or are refused.

A map is made of every pair of curve, terms, evidence and base-rate source. Each consumer must give
the probabilities that `tests/plain_map.py`, which knows only the JSON format, computes from the
saved document; a pair that cannot be made must be one of the table `REFUSED`.
"""

import json
import sqlite3
import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import calibrank as cr
from calibrank.composition import REFUSED, refusal
from calibrank.errors import CalibrankWarning
from calibrank.export import to_json, to_onnx, to_sql, to_torch
from tests import engines, table_engines
from tests.members import CALIBRATORS
from tests.plain_map import reader

ROWS = 900
RNG = np.random.default_rng(7)
SCORES = RNG.gamma(2.0, 1.0, ROWS) - 1
COUNTRY = RNG.choice(["NL", "DE", "it's", "中文"], ROWS, p=[0.4, 0.3, 0.2, 0.1])
CITY = np.char.add(np.char.add(COUNTRY, "/"), RNG.integers(0, 3, ROWS).astype(str))
PRICE = RNG.lognormal(1, 1, ROWS)
AGE = RNG.integers(18, 80, ROWS).astype(float)
RANK = np.arange(ROWS) % 30 + 1.0
SHOP = RNG.integers(1, 4, ROWS)
COLUMNS = {"country": COUNTRY, "city": CITY, "price": PRICE, "age": AGE, "rank": RANK, "shop": SHOP}
SLOPE = np.where(SHOP == 1, 0.4, 1.0)
TRUTH = 1 / (1 + np.exp(1.5 - SLOPE * SCORES - (COUNTRY == "NL") + 0.3 * np.log(PRICE)))
LABELS = (RNG.random(ROWS) < TRUTH).astype(float)
PROPENSITY = RNG.uniform(0.5, 1, ROWS)
SEEN = LABELS * (RNG.random(ROWS) < PROPENSITY)
RANDOM = np.arange(0, ROWS, 3)

TERMS = {
    "no term": (),
    "level": (cr.Level("country"),),
    "nested level": (cr.Level("country", "city"),),
    "smooth": (cr.Smooth("price"),),
    "level + smooth": (cr.Level("country"), cr.Smooth("price")),
    "two levels + two smooth": (
        cr.Level("country", "city"),
        cr.Smooth("price"),
        cr.Level("shop"),
        cr.Smooth("age", knots=2),
    ),
}
EVIDENCE = {
    "naive": cr.naive(LABELS),
    "ips": cr.ips(SEEN, PROPENSITY),
    "positive_ips": cr.positive_ips(SEEN, PROPENSITY),
    "impressions": cr.impressions(LABELS, PROPENSITY),
}


def at_assumed(fitted):
    return fitted


def at_random_labels(fitted):
    columns = {name: values[RANDOM] for name, values in COLUMNS.items()}
    return cr.anchor(fitted, SCORES[RANDOM], LABELS[RANDOM], columns)


def at_known_rate(fitted):
    return cr.to_base_rate(fitted, 0.1, SCORES, columns=COLUMNS)


def at_known_rate_and_random_labels(fitted):
    moved = cr.to_base_rate(fitted, 0.1, SCORES, rate_range=(0.05, 0.2), columns=COLUMNS)
    return at_random_labels(moved)


def at_top(fitted):
    columns = {name: values[RANDOM] for name, values in COLUMNS.items()}
    terms = [cr.Position("rank", n=5)]
    return cr.anchor(fitted, SCORES[RANDOM], LABELS[RANDOM], columns, terms=terms)


SOURCES = {
    "assumed": at_assumed,
    "random labels": at_random_labels,
    "known rate": at_known_rate,
    "known rate, then random labels": at_known_rate_and_random_labels,
    "random labels at the top": at_top,
}


def made(curve, terms, evidence, source):
    """The map, or the text of the error that refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrankWarning)
        try:
            model = curve
            for term in TERMS[terms]:
                model += term
            columns = COLUMNS if TERMS[terms] else None
            fitted = model.fit(SCORES, EVIDENCE[evidence], columns)
            return SOURCES[source](fitted)
        except cr.DataError as error:
            return str(error)


REASONS = {str(refusal(first, each.second)) for each in REFUSED for first in each.first.split(", ")}
GAUSSIAN = cr.Gaussian()
CELLS = list(
    dict.fromkeys(
        [
            *product(CALIBRATORS, TERMS, ["naive"], ["assumed"]),
            *product(CALIBRATORS, ["no term"], EVIDENCE, ["assumed"]),
            *product(CALIBRATORS, ["no term", "level + smooth"], ["naive"], SOURCES),
            *product([GAUSSIAN], TERMS, EVIDENCE, ["assumed"]),
            *product([GAUSSIAN], TERMS, ["ips"], SOURCES),
            *product([GAUSSIAN], ["level + smooth"], EVIDENCE, SOURCES),
        ]
    )
)

# Rows at which consumers are compared: of the fit, beyond it, and of levels never seen.
PLACES = np.arange(0, ROWS, 45)
AT = {
    "score": np.concatenate([SCORES[PLACES], [-30.0, 0.0, 40.0]]),
    "country": np.array([*COUNTRY[PLACES], "NL", "??", "DE"], dtype=object),
    "city": np.array([*CITY[PLACES], "NL/9", "??", "DE/0"], dtype=object),
    "price": np.concatenate([PRICE[PLACES], [-1.0, 5.0, 1e6]]),
    "age": np.concatenate([AGE[PLACES], [0.0, 50.0, 1e6]]),
    "rank": np.concatenate([RANK[PLACES], [1.0, 5.0, 6.0]]),
    "shop": np.concatenate([SHOP[PLACES], [1, 2, 9]]),
}


def expected(fitted, at=AT):
    """Probabilities by the independent reader, from the saved text."""
    probability = reader(json.loads(fitted.to_json()))
    names = list(at)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*at.values(), strict=True)]
    return np.array([probability(float(row["score"]), row) for row in rows])


def by_predict(fitted, at=AT):
    return fitted.predict(at["score"], at)


def by_log_odds(fitted, at=AT):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-fitted.log_odds(at["score"], at)))


def by_scalar(fitted, at=AT):
    probability = fitted.scalar()
    found = []
    for place, score in enumerate(at["score"].tolist()):
        columns = {name: values[place] for name, values in at.items()}
        found.append(probability(score, columns) if fitted.terms else probability(score))
    return np.array(found)


def by_loading(fitted, at=AT):
    from calibrank.maps.format import parse

    return parse("map", fitted.to_json()).predict(at["score"], at)


def by_pandas(fitted, at=AT):
    pandas = pytest.importorskip("pandas")
    return fitted.transform(pandas.DataFrame(at))["probability"].to_numpy()


def by_polars(fitted, at=AT):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: values.tolist() for name, values in at.items()})
    eager = fitted.transform(frame)["probability"].to_numpy()
    lazy = fitted.transform(frame.lazy()).collect()["probability"].to_numpy()
    np.testing.assert_allclose(eager, lazy, rtol=1e-9, atol=1e-12)
    return lazy


def by_duckdb(fitted, at=AT):
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    connection = duckdb.connect()
    connection.register("rows", pandas.DataFrame(at))
    sql = to_sql(fitted, "duckdb")
    query = f"SELECT {sql} AS probability FROM rows"  # noqa: S608  (our own)
    return connection.execute(query).fetchnumpy()["probability"]


def sqlite_has_functions():
    """Whether this build of SQLite has logarithms and exponentials, which are an option of it."""
    names = sqlite3.connect(":memory:").execute("SELECT name FROM pragma_function_list")
    return {"exp", "ln"} <= {name for (name,) in names}


def by_sqlite(fitted, at=AT):
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE rows ({', '.join(at)})")
    values = zip(*[values.tolist() for values in at.values()], strict=True)
    places = ", ".join("?" * len(at))
    connection.executemany(f"INSERT INTO rows VALUES ({places})", list(values))  # noqa: S608  (our own)
    sql = to_sql(fitted, "sqlite")
    query = f"SELECT {sql} FROM rows ORDER BY rowid"  # noqa: S608  (our own)
    found = connection.execute(query).fetchall()
    return np.array([value for (value,) in found], dtype=float)


def graph_inputs(fitted, at=AT):
    """The inputs of a graph by name: numbers, and the numbers of levels."""
    inputs = dict(fitted.level_index(at))
    for name, term in zip(fitted.input_names(), fitted.terms, strict=True):
        if term.role != "level":
            inputs[name] = at[term.columns[0]].astype(np.float64)
    return inputs


def by_onnx(fitted, at=AT):
    runtime = pytest.importorskip("onnxruntime")
    model = to_onnx(fitted, dtype="float64")
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(None, {"score": at["score"].astype(float), **graph_inputs(fitted, at)})[0]


def by_torch(fitted, at=AT):
    torch = pytest.importorskip("torch")
    inputs = graph_inputs(fitted, at)
    ordered = [torch.from_numpy(np.asarray(inputs[name])) for name in fitted.input_names()]
    return to_torch(fitted, "float64")(
        torch.from_numpy(at["score"].astype(float)), *ordered
    ).numpy()


def by_vectors(fitted, at=AT):
    """The exported test vectors agree with the independent reader, and the rest with `predict`."""
    document = json.loads(to_json(fitted))
    probability = reader(document["map"])
    for vector in document["vectors"]:
        found = probability(vector["score"], vector.get("columns", {}))
        assert found == pytest.approx(vector["probability"], rel=1e-9, abs=1e-12)
    return fitted.predict(at["score"], at)


CONSUMERS = {
    function.__name__: function
    for function in (
        by_predict,
        by_log_odds,
        by_scalar,
        by_loading,
        by_pandas,
        by_sqlite,
        by_vectors,
    )
}
if not sqlite_has_functions():
    del CONSUMERS["by_sqlite"]
# They take longer, and depend on curves and terms alone.
ENGINES = {function.__name__: function for function in (by_polars, by_duckdb, by_onnx, by_torch)}


def cell_id(cell):
    return ", ".join([repr(cell[0]), *cell[1:]])


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_every_pair_agrees_with_the_saved_document_or_is_refused(cell) -> None:
    fitted = made(*cell)
    if isinstance(fitted, str):
        assert fitted in REASONS, fitted
        return
    consumers = dict(CONSUMERS)
    if cell[2:] == ("naive", "assumed") or cell[::2] == (GAUSSIAN, "ips"):
        consumers |= ENGINES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrankWarning)
        truth = expected(fitted)
        low, high = fitted.sampling_interval(AT["score"], AT)
        for name, consumer in consumers.items():
            # SQLite's own logarithms and exponentials differ in their last digits.
            np.testing.assert_allclose(
                consumer(fitted), truth, rtol=1e-7, atol=1e-10, err_msg=f"{cell}: {name}"
            )
    assert ((low <= truth + 1e-12) & (truth - 1e-12 <= high)).all()
    turned = replace(fitted, terms=fitted.terms[::-1])
    np.testing.assert_allclose(turned.sampling_interval(AT["score"], AT), [low, high], rtol=1e-9)
    require_columns(fitted)


# Each kind of term, with the curves that it is added to.
SERVED = [
    *product([GAUSSIAN], TERMS, ["ips"], ["random labels at the top"]),
    (cr.Isotonic(), "level + smooth", "naive", "assumed"),
    (GAUSSIAN, "two levels + two smooth", "naive", "assumed"),
]
KINDS = {name: "text" if name in ("country", "city") else "double" for name in AT}
TABLE_ROWS = list(zip(*[values.tolist() for values in AT.values()], strict=True))


def test_spark_agrees_with_the_saved_document() -> None:
    pytest.importorskip("pyspark")
    # A plan of 200 knots takes seconds, so that only one map of those is planned.
    check_served(SERVED[-3:], table_engines.spark_columns)
    check_served(SERVED[-2:], table_engines.spark_sql)


def test_postgresql_agrees_with_the_saved_document() -> None:
    with engines.short_folder() as folder, engines.postgresql_server(folder) as server:
        check_served(SERVED, table_engines.postgresql(server))


def check_served(cells, engine: table_engines.TableEngine) -> None:
    """An engine that is slow to start gives the probabilities of the independent reader."""
    for cell in cells:
        fitted = made(*cell)
        found = engine(fitted, KINDS, TABLE_ROWS)
        np.testing.assert_allclose(found, expected(fitted), rtol=1e-9, err_msg=f"{cell}")


def require_columns(fitted) -> None:
    """A column that is absent is an error that names it."""
    for missing in fitted.columns:
        rest = {name: values for name, values in AT.items() if name != missing}
        for method in (fitted.predict, fitted.log_odds, fitted.interval):
            with pytest.raises(cr.DataError, match=missing):
                method(AT["score"], rest)
        with pytest.raises(cr.DataError, match=missing):
            fitted.scalar()(0.0, {name: values[0] for name, values in rest.items()})
    if fitted.columns:
        with pytest.raises(cr.DataError, match=fitted.columns[0]):
            fitted.predict(AT["score"])
    assert fitted.without_terms().predict(AT["score"]).shape == AT["score"].shape


def test_the_refused_pairs_are_found() -> None:
    """Each reason about curves, terms and base rates is raised by what it is about."""
    with pytest.raises(cr.DataError, match=r"Group must not go with other terms"):
        cr.Gaussian() + cr.Group("query") + cr.Level("country")
    with pytest.raises(cr.DataError, match=r"Position must not go with a fit"):
        cr.Gaussian() + cr.Position()
    with pytest.raises(cr.DataError, match=r"Group must not go with anchor"):
        cr.anchor(GAUSSIAN.fit(SCORES, LABELS), SCORES, LABELS, terms=[cr.Group("query")])
