"""Maps with terms in adapters: ranks are those of the lists, other columns are passed by name."""

from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.adapters import (
    Cutoff,
    Ranker,
    from_lists,
    haystack_component,
    langchain_compressor,
    llamaindex_postprocessor,
)
from tests.maps.samples import gaussian_map, level_term, map_of, position_term, smooth_term
from tests.optional import pipeline_package

CURVE = gaussian_map().curve
BY_RANK = map_of(CURVE, position_term("rank"))
BY_COUNTRY = map_of(CURVE, level_term("country"), position_term("place"))
BY_PRICE = map_of(CURVE, smooth_term("price"))
ITEMS = [[4, 2, 7], [3, 3, 0]]
SCORES = [[2.0, 1.0, 0.5], [1.5, 1.4, -0.5]]


def test_lists_pass_the_ranks_that_they_show() -> None:
    lists = from_lists(BY_RANK, ["ann", "bob"], ITEMS, SCORES)
    # Bob's second slot repeats an item, so his third is his second recommendation.
    assert lists.ranks.tolist() == [1, 2, 3, 1, 2]
    expected = BY_RANK.predict(lists.scores, {"rank": [1, 2, 3, 1, 2]})
    np.testing.assert_array_equal(lists.probabilities, expected)
    assert (expected != map_of(CURVE).predict(lists.scores)).any()


def test_columns_are_one_value_per_user_or_per_item() -> None:
    users = ["ann", "bob"]
    per_user = from_lists(BY_COUNTRY, users, ITEMS, SCORES, columns={"country": ["NL", "7"]})
    countries = ["NL", "NL", "NL", "7", "7"]
    wanted = {"country": countries, "place": [1, 2, 3, 1, 2]}
    np.testing.assert_array_equal(
        per_user.probabilities, BY_COUNTRY.predict(per_user.scores, wanted)
    )
    per_item = {"country": [["NL", "7", "x"], ["7", "NL", "NL"]]}
    lists = from_lists(BY_COUNTRY, users, ITEMS, SCORES, columns=per_item)
    wanted["country"] = ["NL", "7", "x", "7", "NL"]
    np.testing.assert_array_equal(lists.probabilities, BY_COUNTRY.predict(lists.scores, wanted))


def test_a_column_that_is_not_given_is_an_error_that_names_it() -> None:
    users = ["ann", "bob"]
    with pytest.raises(cr.DataError, match="columns must have 'country', which the map needs"):
        from_lists(BY_COUNTRY, users, ITEMS, SCORES)
    with pytest.raises(cr.DataError, match="columns must have the column 'country'"):
        from_lists(BY_COUNTRY, users, ITEMS, SCORES, columns={"city": ["a", "b"]})
    with pytest.raises(cr.DataError, match=r"'country' must have one value per user \(2\) or"):
        from_lists(BY_COUNTRY, users, ITEMS, SCORES, columns={"country": ["a", "b", "c"]})
    ranker = Ranker(lambda features: features[:, 0])
    with pytest.raises(cr.DataError, match="columns must have 'price'"):
        ranker.recommend(BY_PRICE, np.eye(2), ["q", "q"])
    with pytest.raises(cr.DataError, match=r"'price' must have one value per score \(2\), got 1"):
        ranker.recommend(BY_PRICE, np.eye(2), ["q", "q"], columns={"price": [1.0]})
    with pytest.raises(cr.DataError, match="columns must have 'price'"):
        Cutoff(BY_PRICE).kept([1.0])
    with pytest.raises(cr.DataError, match=r"documents must have metadata\['price'\]"):
        Cutoff(BY_PRICE).kept([1.0], [{"color": "red"}])


def test_rankers_pass_columns_in_the_order_of_rows() -> None:
    features = np.array([[0.1], [2.0], [1.0], [0.5]])
    country = np.array(["NL", "7", "x", "NL"])
    ranker = Ranker(lambda rows: rows[:, 0])
    queries = ["a", "a", "b", "b"]
    lists = ranker.recommend(BY_COUNTRY, features, queries, columns={"country": country})
    wanted = {"country": country[lists.items], "place": [1, 2, 1, 2]}
    np.testing.assert_array_equal(lists.probabilities, BY_COUNTRY.predict(lists.scores, wanted))


PRICES = [0.5, -1.0, 2.0]
GIVEN = [0.2, 1.0, 0.7]


def langchain(cutoff: Cutoff) -> dict[Any, float]:
    documents = pipeline_package("langchain_core.documents")
    given = []
    for score, price in zip(GIVEN, PRICES, strict=True):
        metadata = {"price": price, "s": score}
        given.append(documents.Document(page_content="a", metadata=metadata))
    kept = langchain_compressor(cutoff, "s").compress_documents(given, "q")
    return {each.metadata["s"]: each.metadata["probability"] for each in kept}


def llamaindex(cutoff: Cutoff) -> dict[Any, float]:
    schema = pipeline_package("llama_index.core.schema")
    nodes = []
    for score, price in zip(GIVEN, PRICES, strict=True):
        node = schema.TextNode(text="a", metadata={"price": price})
        nodes.append(schema.NodeWithScore(node=node, score=score))
    kept = llamaindex_postprocessor(cutoff).postprocess_nodes(nodes, query_str="q")
    return {each.node.metadata["score"]: each.score for each in kept}


def haystack(cutoff: Cutoff) -> dict[Any, float]:
    package = pipeline_package("haystack")
    documents = []
    for score, price in zip(GIVEN, PRICES, strict=True):
        documents.append(package.Document(content="a", score=score, meta={"price": price}))
    kept = haystack_component(cutoff).run(documents)["documents"]
    return {each.meta["score"]: each.score for each in kept}


@pytest.mark.parametrize("pipeline", [langchain, llamaindex, haystack])
def test_pipelines_read_columns_of_metadata(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    fitted = map_of(CURVE, smooth_term("price"), position_term("rank"))
    expected = fitted.predict(GIVEN, {"price": PRICES, "rank": [3, 1, 2]})
    found = pipeline(Cutoff(fitted))
    assert found == pytest.approx(dict(zip(GIVEN, expected.tolist(), strict=True)))
