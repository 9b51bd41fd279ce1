"""Retrieval pipelines: postprocessors that add probabilities to documents and cut by them.

One for LangChain, LlamaIndex and Haystack each. What the scores are is declared: the similarity of
a vector store and a reranker's logits are `Margin()`, a store's distances are `Distance()`, outputs
of a sigmoid are `Probability()`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from calibrank._internal.arguments import instance, real
from calibrank._internal.validation import Floats
from calibrank.adapters.lists import with_ranks
from calibrank.adapters.outputs import DECLARED, Margin, Outputs, to_numpy
from calibrank.adapters.row_models import CrossEncoder
from calibrank.errors import CalibrankError, DataError, ScoreShiftWarning
from calibrank.maps import CalibrationMap
from calibrank.maps.score_shift import LARGEST_OUTSIDE, ScoreComparison

PROBABILITY = "probability"
"""The metadata field that probabilities are written to."""

Kept: TypeAlias = tuple[int, float]
"""The position of a document and its probability."""


# A list or two of scores outside the range of the fit proves nothing.
_FEWEST_SCORES = 100


@dataclass(frozen=True, slots=True)
class Cutoff:
    """A map, what the scores are, and the lowest probability to keep.

    A document that does not reach `threshold` is left out; where none does, the answer is nothing.
    A `ScoreShiftWarning` says once if many scores lie outside the range of the fit. The columns of
    a map's terms are read from the metadata of documents; a rank is the place by score.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> Cutoff(fitted, threshold=0.5).kept([2.0, -1.0, 0.6])
    [(0, ...), (2, ...)]
    """

    fitted: CalibrationMap
    outputs: Outputs = field(default_factory=Margin)
    threshold: float = 0.0
    _comparison: ScoreComparison | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        instance("fitted", self.fitted, CalibrationMap, "Read one with calibrank.load.")
        instance("outputs", self.outputs, Outputs, DECLARED)
        real("threshold", self.threshold, "[0, 1]", "It is a probability.")
        object.__setattr__(self, "_comparison", ScoreComparison(self.fitted.record))

    def _compare(self, scores: Floats) -> None:
        """Warn once if many scores lie outside the range of the fit, as after a change of model.

        Where in the range they lie is not compared: pipelines see the top of each list.
        """
        comparison = self._comparison
        if comparison is None:
            return
        comparison.add(scores[~np.isnan(scores)])
        if comparison.rows >= _FEWEST_SCORES and comparison.outside > LARGEST_OUTSIDE:
            object.__setattr__(self, "_comparison", None)
            message = (
                f"{comparison.outside:.0%} of {comparison.rows:,} scores lie outside the range "
                "that the map was fitted on. If the model changed, fit a new map. With "
                "Probability(), scores are log odds: the map must have been fitted on these too."
            )
            # From here: kept, the pipeline's method, and then the pipeline.
            warnings.warn(message, ScoreShiftWarning, stacklevel=3)

    def kept(self, values: Any, metadata: Sequence[Mapping[str, Any]] = ()) -> list[Kept]:
        """Positions and probabilities of what is kept, the highest probability first."""
        if len(values) == 0:
            return []
        scores = self.outputs.scores(values)
        self._compare(scores)
        ranks = np.empty(len(scores), dtype=np.intp)
        ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)

        def of_documents(name: str) -> Any:
            for each in metadata:
                if name not in each:
                    raise DataError(
                        "documents",
                        f"have metadata[{name!r}], which the map needs",
                        sorted(each),
                        "Add it, or use fitted.without_terms().",
                    )
            return [each[name] for each in metadata]

        columns = with_ranks(self.fitted, metadata or None, ranks, of_documents)
        probabilities = self.fitted.predict(scores, columns).tolist()
        kept = [(place, p) for place, p in enumerate(probabilities) if p >= self.threshold]
        # Equal probabilities stay in the order of the retriever.
        return sorted(kept, key=lambda each: -each[1])

    def cut(
        self,
        documents: Sequence[Any],
        scores: Sequence[Any],
        metadata: Sequence[Mapping[str, Any]],
        copied: Callable[[Any, dict[str, float]], Any],
    ) -> list[Any]:
        """What is kept of a pipeline's documents, each `copied` with what is new about it."""
        if any(score is None for score in scores):
            raise DataError("documents", "have scores", "none", "Rank them first.")
        result = []
        for place, probability in self.kept(scores, metadata):
            new = {PROBABILITY: probability, "score": scores[place]}
            result.append(copied(documents[place], new))
        return result


def _require_cutoff(cutoff: object) -> None:
    instance("cutoff", cutoff, Cutoff, "Make one: Cutoff(fitted, outputs, threshold).")


def langchain_compressor(cutoff: Cutoff, encoder: CrossEncoder | str) -> Any:
    """A LangChain document compressor: documents with `metadata["probability"]`, cut by it.

    `encoder` scores each document, or names the metadata field that holds its score already, as
    some vector stores return it.
    """
    _require_cutoff(cutoff)
    instance("encoder", encoder, (CrossEncoder, str), "A string names a metadata field.")
    if not isinstance(encoder, str) and encoder.outputs != cutoff.outputs:
        raise DataError(
            "cutoff and encoder",
            "declare the same outputs",
            f"{cutoff.outputs} and {encoder.outputs}",
            "Both are about what the encoder's predict returns.",
        )
    # Importing the callbacks completes the types that the base class names.
    imported("langchain_core.callbacks", "langchain-core")
    base: Any = imported("langchain_core.documents", "langchain-core").BaseDocumentCompressor

    def copied(document: Any, new: dict[str, float]) -> Any:
        metadata = {**document.metadata, PROBABILITY: new[PROBABILITY]}
        return document.model_copy(update={"metadata": metadata})

    def compress_documents(
        self: Any,  # noqa: ARG001  (a method)
        documents: Sequence[Any],
        query: str,
        callbacks: Any = None,  # noqa: ARG001  (LangChain's interface)
    ) -> list[Any]:
        metadata = [each.metadata for each in documents]
        values: Any = []
        if isinstance(encoder, str):
            values = [each.get(encoder) for each in metadata]
        elif documents:
            values = to_numpy(encoder.predict([(query, each.page_content) for each in documents]))
        return cutoff.cut(documents, list(values), metadata, copied)

    return _subclass("ProbabilityCompressor", base, compress_documents=compress_documents)


def llamaindex_postprocessor(cutoff: Cutoff) -> Any:
    """A LlamaIndex node postprocessor: each node's score becomes its probability, cut by it.

    The score as it was is kept in `metadata["score"]`.
    """
    _require_cutoff(cutoff)
    module = imported("llama_index.core.postprocessor.types", "llama-index-core")

    def copied(node: Any, new: dict[str, float]) -> Any:
        # A copy: the retriever's own node may be that of its store.
        copy = node.node.model_copy(update={"metadata": {**node.node.metadata, **new}})
        return type(node)(node=copy, score=new[PROBABILITY])

    def _postprocess_nodes(
        self: Any,  # noqa: ARG001  (a method)
        nodes: list[Any],
        query_bundle: Any = None,  # noqa: ARG001  (LlamaIndex's interface)
    ) -> list[Any]:
        metadata = [node.node.metadata for node in nodes]
        return cutoff.cut(nodes, [node.score for node in nodes], metadata, copied)

    return _subclass(
        "ProbabilityPostprocessor",
        module.BaseNodePostprocessor,
        _postprocess_nodes=_postprocess_nodes,
        class_name=classmethod(lambda _: "ProbabilityPostprocessor"),
    )


def _subclass(name: str, base: Any, **methods: Any) -> Any:
    """An object of a new subclass of a pipeline's base class."""
    about = {"__doc__": "Adds probabilities and cuts by them.", "__module__": __name__}
    return type(name, (base,), about | methods)()


def haystack_component(cutoff: Cutoff) -> Any:
    """A Haystack component: `run(documents)` returns those that reach the threshold.

    Each has its probability as score and in `meta["probability"]`, and its former score in
    `meta["score"]`. A pipeline that has it can be saved, with the map; to load it, Haystack wants
    its module named: `Pipeline.loads(text, allowed_modules=["calibrank.*"])`.
    """
    _require_cutoff(cutoff)
    from calibrank.adapters import _haystack  # noqa: PLC0415  (it needs Haystack)

    return _haystack.ProbabilityCutoff(**_haystack.init_parameters(cutoff))


def imported(module: str, package: str) -> Any:
    """A module of an optional package, or an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        # These packages are no extras of calibrank: whoever has a pipeline has them.
        raise CalibrankError(
            package, "be installed", error, f"Run: pip install {package}"
        ) from None
