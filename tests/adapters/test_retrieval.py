"""Postprocessors of retrieval pipelines, in the real packages where they are installed."""

from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.adapters import (
    CrossEncoder,
    Cutoff,
    Margin,
    Probability,
    haystack_component,
    langchain_compressor,
    llamaindex_postprocessor,
)


@pytest.fixture
def fitted() -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 2, 500)
    return cr.Platt().fit(scores, rng.random(500) < 1 / (1 + np.exp(-scores)))


def test_a_cutoff_keeps_what_reaches_it_best_first(fitted: cr.CalibrationMap) -> None:
    kept = Cutoff(fitted, threshold=0.5).kept([-3.0, 1.0, 3.0])
    assert [place for place, _ in kept] == [2, 1]
    np.testing.assert_allclose([p for _, p in kept], fitted.predict([3.0, 1.0]))
    assert Cutoff(fitted, threshold=1.0).kept([-3.0, 1.0]) == []
    assert Cutoff(fitted).kept([]) == []


def test_what_the_scores_are_is_declared(fitted: cr.CalibrationMap) -> None:
    """A cross-encoder with a sigmoid returns 0.88 for the logit 2."""
    as_logit = Cutoff(fitted, Margin()).kept([2.0])[0][1]
    as_probability = Cutoff(fitted, Probability()).kept([1 / (1 + np.exp(-2.0))])[0][1]
    assert as_probability == pytest.approx(as_logit)
    with pytest.raises(cr.DataError, match="strictly between 0 and 1"):
        Cutoff(fitted, Probability()).kept([2.0])
    with pytest.raises(cr.DataError, match="threshold must"):
        Cutoff(fitted, threshold=1.5)


def test_similarities_of_a_narrow_range_are_told_apart() -> None:
    """Cosine similarities between 0.65 and 0.71: the map spreads them."""
    rng = np.random.default_rng(1)
    similarity = rng.uniform(0.65, 0.71, 3000)
    labels = rng.random(3000) < 1 / (1 + np.exp(-(similarity - 0.69) / 0.006))
    map_of_store = cr.Platt().fit(similarity, labels)
    kept = Cutoff(map_of_store, threshold=0.5).kept([0.66, 0.689, 0.70])
    assert [place for place, _ in kept][:1] == [2]
    assert map_of_store.predict(0.66) < 0.05
    assert map_of_store.predict(0.705) > 0.85


def test_langchain(fitted: cr.CalibrationMap) -> None:
    documents = pytest.importorskip("langchain_core.documents")
    given = [documents.Document(page_content=each) for each in ("bad", "good", "fair")]
    scores = {"bad": -4.0, "good": 4.0, "fair": 0.5}

    def predict(pairs: list[tuple[str, str]]) -> list[float]:
        assert all(query == "q" for query, _ in pairs)
        return [scores[passage] for _, passage in pairs]

    compressor = langchain_compressor(
        Cutoff(fitted, threshold=0.5), CrossEncoder(predict, Margin())
    )
    assert isinstance(compressor, documents.BaseDocumentCompressor)
    kept = compressor.compress_documents(given, "q")
    assert [document.page_content for document in kept] == ["good", "fair"]
    assert kept[0].metadata["probability"] == pytest.approx(fitted.predict(4.0))
    assert given[1].metadata == {}
    stored = [documents.Document(page_content="a", metadata={"score": 1.0})]
    by_field = langchain_compressor(Cutoff(fitted), "score")
    assert by_field.compress_documents(stored, "q")[0].metadata["score"] == 1.0
    with pytest.raises(cr.DataError, match="must have metadata"):
        by_field.compress_documents(given, "q")


def test_llamaindex(fitted: cr.CalibrationMap) -> None:
    schema: Any = pytest.importorskip("llama_index.core.schema")
    nodes = [
        schema.NodeWithScore(node=schema.TextNode(text=str(score)), score=score)
        for score in (-4.0, 4.0, 0.5)
    ]
    postprocessor = llamaindex_postprocessor(Cutoff(fitted, threshold=0.5))
    kept = postprocessor.postprocess_nodes(nodes, query_str="q")
    assert [node.node.text for node in kept] == ["4.0", "0.5"]
    assert kept[0].score == pytest.approx(fitted.predict(4.0))
    assert kept[0].node.metadata["score"] == 4.0
    unscored = schema.NodeWithScore(node=schema.TextNode(text="a"))
    with pytest.raises(cr.DataError, match="nodes must have scores"):
        postprocessor.postprocess_nodes([unscored], query_str="q")


def test_haystack(fitted: cr.CalibrationMap) -> None:
    haystack: Any = pytest.importorskip("haystack")
    documents = [haystack.Document(content=str(score), score=score) for score in (-4.0, 4.0, 0.5)]
    pipeline = haystack.Pipeline()
    pipeline.add_component("cut", haystack_component(Cutoff(fitted, threshold=0.5)))
    kept = pipeline.run({"cut": {"documents": documents}})["cut"]["documents"]
    assert [document.content for document in kept] == ["4.0", "0.5"]
    assert kept[0].score == pytest.approx(fitted.predict(4.0))
    assert kept[0].meta["score"] == 4.0
