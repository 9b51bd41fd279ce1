"""Postprocessors of retrieval pipelines, in the real packages where they are installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.adapters import (
    CrossEncoder,
    Cutoff,
    Distance,
    Margin,
    Outputs,
    Probability,
    haystack_component,
    langchain_compressor,
    llamaindex_postprocessor,
)
from calibrank.errors import ScoreShiftWarning
from calibrank.search import Judge, Run, anchor_judged, fit_judged, judged_by
from tests.optional import pipeline_package


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


def test_a_cutoff_warns_once_if_the_model_was_changed(fitted: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(4)
    cutoff = Cutoff(fitted, threshold=0.5)
    for _ in range(30):
        # The top of each list is a selection, not another model.
        cutoff.kept(np.sort(rng.normal(0, 2, 100))[-10:])
    other = Cutoff(fitted, threshold=0.5)
    for _ in range(9):
        other.kept(rng.normal(30, 5, 10))
    with pytest.warns(ScoreShiftWarning, match="100% of 100 scores lie outside the range"):
        other.kept(rng.normal(30, 5, 10))
    # A map of probabilities, where the cutoff turns them into log odds.
    mixed_up = Cutoff(cr.Platt().fit([0.0, 0.4, 0.6, 1.0], [0, 1, 0, 1]), Probability())
    with pytest.warns(ScoreShiftWarning, match="With Probability.., scores are log odds"):
        mixed_up.kept(np.linspace(0.01, 0.99, 100))
    other.kept(rng.normal(30, 5, 10))
    assert Cutoff(fitted, threshold=0.5) == cutoff


def test_similarities_of_a_narrow_range_are_told_apart() -> None:
    """Cosine similarities between 0.65 and 0.71: the map spreads them."""
    rng = np.random.default_rng(1)
    similarity = rng.uniform(0.65, 0.71, 3000)
    labels = rng.random(3000) < 1 / (1 + np.exp(-(similarity - 0.69) / 0.006))
    map_of_store = cr.Platt().fit(similarity, labels)
    kept = Cutoff(map_of_store, threshold=0.5).kept([0.66, 0.689, 0.70])
    assert [place for place, _ in kept][:1] == [2]
    # A store that returns distances gets the same map.
    distances = [1 - each for each in (0.66, 0.689, 0.70)]
    by_distance = cr.Platt().fit(Distance().scores(1 - similarity), labels)
    assert Cutoff(by_distance, Distance(), threshold=0.5).kept(distances) == [
        (place, pytest.approx(p, abs=1e-6)) for place, p in kept
    ]
    assert map_of_store.predict(0.66) < 0.05
    assert map_of_store.predict(0.705) > 0.85


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights and a vocabulary of a few words, on disk."""
    transformers = pipeline_package("transformers")
    torch: Any = pytest.importorskip("torch")
    pipeline_package("sentence_transformers")
    folder = tmp_path_factory.mktemp("reranker")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] green black tea ale beer what is"
    (folder / "vocab.txt").write_text("\n".join(words.split()))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words.split()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        num_labels=1,
        initializer_range=1.0,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_sentence_transformers_with_and_without_its_sigmoid(reranker: Path) -> None:
    """One model returns probabilities or logits: an argument decides, values do not show it."""
    torch: Any = pytest.importorskip("torch")
    library = pipeline_package("sentence_transformers")
    pairs = [("green tea", "what is green tea"), ("green tea", "black ale"), ("beer", "ale")]
    with_sigmoid = library.CrossEncoder(str(reranker), device="cpu")
    plain = library.CrossEncoder(str(reranker), device="cpu", activation_fn=torch.nn.Identity())
    logits = np.asarray(plain.predict(pairs), dtype=np.float64)
    assert np.ptp(logits) > 0.05
    np.testing.assert_allclose(with_sigmoid.predict(pairs), 1 / (1 + np.exp(-logits)), atol=1e-5)
    probabilities = CrossEncoder(with_sigmoid, Probability())
    margins = CrossEncoder(plain, Margin())
    np.testing.assert_allclose(margins.score(pairs), logits, rtol=1e-5)
    np.testing.assert_allclose(probabilities.score(pairs), logits, atol=1e-4)
    with pytest.raises(cr.DataError, match=r"outputs must be Probability\(\) for a model whose"):
        CrossEncoder(with_sigmoid, Margin())
    with pytest.raises(cr.DataError, match=r"activation_fn is Identity, got Probability\(\)"):
        CrossEncoder(plain, Probability())


def test_sentence_transformers_in_langchain(fitted: cr.CalibrationMap, reranker: Path) -> None:
    documents = pipeline_package("langchain_core.documents")
    library = pipeline_package("sentence_transformers")
    model = library.CrossEncoder(str(reranker), device="cpu")
    encoder = CrossEncoder(model, Probability())
    with pytest.raises(cr.DataError, match="must declare the same outputs"):
        langchain_compressor(Cutoff(fitted, Margin()), encoder)
    compressor = langchain_compressor(Cutoff(fitted, Probability()), encoder)
    given = [documents.Document(page_content=text) for text in ("green tea", "black ale")]
    kept = compressor.compress_documents(given, "what is tea")
    for document in kept:
        score = encoder.score([("what is tea", document.page_content)])[0]
        assert document.metadata["probability"] == pytest.approx(fitted.predict(score), rel=1e-4)


def test_langchain(fitted: cr.CalibrationMap) -> None:
    documents = pipeline_package("langchain_core.documents")
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
    with pytest.raises(cr.DataError, match="documents must have scores"):
        by_field.compress_documents(given, "q")


def test_llamaindex(fitted: cr.CalibrationMap) -> None:
    schema = pipeline_package("llama_index.core.schema")
    nodes = [
        schema.NodeWithScore(node=schema.TextNode(text=str(score)), score=score)
        for score in (-4.0, 4.0, 0.5)
    ]
    postprocessor = llamaindex_postprocessor(Cutoff(fitted, threshold=0.5))
    kept = postprocessor.postprocess_nodes(nodes, query_str="q")
    assert [node.node.text for node in kept] == ["4.0", "0.5"]
    assert kept[0].score == pytest.approx(fitted.predict(4.0))
    assert kept[0].node.metadata["score"] == 4.0
    # The retriever's own nodes are as they were.
    assert nodes[1].score == 4.0
    assert nodes[1].node.metadata == {}
    unscored = schema.NodeWithScore(node=schema.TextNode(text="a"))
    with pytest.raises(cr.DataError, match="documents must have scores"):
        postprocessor.postprocess_nodes([unscored], query_str="q")


def test_haystack(fitted: cr.CalibrationMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")  # read when it is imported
    haystack = pipeline_package("haystack")
    documents = [haystack.Document(content=str(score), score=score) for score in (-4.0, 4.0, 0.5)]
    pipeline = haystack.Pipeline()
    pipeline.add_component("cut", haystack_component(Cutoff(fitted, threshold=0.5)))
    kept = pipeline.run({"cut": {"documents": documents}})["cut"]["documents"]
    assert [document.content for document in kept] == ["4.0", "0.5"]
    assert kept[0].score == pytest.approx(fitted.predict(4.0))
    assert kept[0].meta["score"] == 4.0


@pytest.mark.parametrize("outputs", [Margin(), Distance(), Probability()])
def test_a_haystack_pipeline_is_saved_and_loaded_with_its_map(
    fitted: cr.CalibrationMap, monkeypatch: pytest.MonkeyPatch, outputs: Outputs
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    haystack = pipeline_package("haystack")
    documents = [haystack.Document(content=str(score), score=score) for score in (0.2, 0.9, 0.6)]
    pipeline = haystack.Pipeline()
    pipeline.add_component("cut", haystack_component(Cutoff(fitted, outputs, threshold=0.3)))
    loaded = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["calibrank.*"])
    before = pipeline.run({"cut": {"documents": documents}})["cut"]["documents"]
    after = loaded.run({"cut": {"documents": documents}})["cut"]["documents"]
    assert [each.score for each in after] == [each.score for each in before]
    assert len(before) > 0
    component = loaded.get_component("cut")
    assert component.cutoff == Cutoff(fitted, outputs, threshold=0.3)
    saved = component.to_dict()
    assert type(component).from_dict(saved).to_dict() == saved
    saved["init_parameters"]["outputs"] = "Logit"
    with pytest.raises(Exception, match="outputs must be one of Margin, Distance, Probability"):
        type(component).from_dict(saved)


@pytest.fixture(scope="module")
def anchored() -> cr.CalibrationMap:
    """A map of a judge's probabilities, anchored on people's answers for every fifth document."""
    rng = np.random.default_rng(5)
    queries = np.repeat(np.arange(40), 15).astype(str)
    run = Run(queries, np.arange(600).astype(str), rng.normal(0, 2, 600))
    pairs = list(zip(run.queries.tolist(), run.documents.tolist(), strict=True))
    judged = 1 / (1 + np.exp(-1 - run.scores - 0.3 * rng.normal(size=600)))
    truth = (rng.random(600) < 1 / (1 + np.exp(1 - run.scores))).astype(float)
    judge = Judge("judge.qrels", dict(zip(pairs, judged.tolist(), strict=True)))
    people = Judge("people.qrels", dict(list(zip(pairs, truth.tolist(), strict=True))[::5]))
    fitted = anchor_judged(fit_judged(judged_by(run, [judge])), judged_by(run, [people]))
    assert fitted.record.population is not None
    assert fitted.record.population.anchored_on[0].name == "people.qrels"
    return fitted


SCORES = (-4.0, 4.0, 2.0)


def test_langchain_takes_a_judge_anchored_on_people(anchored: cr.CalibrationMap) -> None:
    documents = pipeline_package("langchain_core.documents")
    given = [documents.Document(page_content="", metadata={"score": each}) for each in SCORES]
    compressor = langchain_compressor(Cutoff(anchored), "score")
    kept = compressor.compress_documents(given, "q")
    found = [document.metadata["probability"] for document in kept]
    assert found == pytest.approx(np.sort(anchored.predict(SCORES))[::-1])


def test_llamaindex_takes_a_judge_anchored_on_people(anchored: cr.CalibrationMap) -> None:
    schema = pipeline_package("llama_index.core.schema")
    nodes = [schema.NodeWithScore(node=schema.TextNode(text=""), score=each) for each in SCORES]
    kept = llamaindex_postprocessor(Cutoff(anchored)).postprocess_nodes(nodes, query_str="q")
    found = [node.score for node in kept]
    assert found == pytest.approx(np.sort(anchored.predict(SCORES))[::-1])


def test_haystack_takes_a_judge_anchored_on_people(anchored: cr.CalibrationMap) -> None:
    """Also once its pipeline was saved: the map travels as JSON, with both sources."""
    haystack = pipeline_package("haystack")
    component = haystack_component(Cutoff(anchored))
    given = [haystack.Document(content=str(each), score=each) for each in SCORES]
    for each in (component, type(component).from_dict(component.to_dict())):
        found = [document.score for document in each.run(given)["documents"]]
        assert found == pytest.approx(np.sort(anchored.predict(SCORES))[::-1])
        assert each.cutoff.fitted == anchored
