"""The class of Haystack's component, which Haystack finds by its name when it loads a pipeline.

Importing this module needs Haystack; `haystack_component` does so when it is called.
"""

from __future__ import annotations

from dataclasses import replace
from types import GenericAlias
from typing import Any

from calibrank.adapters.outputs import Outputs
from calibrank.adapters.retrieval import PROBABILITY, Cutoff, imported
from calibrank.errors import DataError
from calibrank.maps.format import parse

_haystack: Any = imported("haystack", "haystack-ai")
# Haystack reads the types of inputs and outputs, and refuses to connect others.
_DOCUMENTS = GenericAlias(list, (_haystack.Document,))


class ProbabilityCutoff:
    """Turns scores of documents into probabilities and cuts by them.

    `fitted` is the JSON text of a map, and `outputs` names what the scores are: as text, they
    survive the formats that pipelines are saved in.
    """

    def __init__(self, fitted: str, outputs: str = "Margin", threshold: float = 0.0) -> None:
        self.cutoff = Cutoff(parse("fitted", fitted), _outputs(outputs), threshold)

    def run(self, documents: Any) -> dict[str, Any]:
        """Return the documents that reach the threshold, the highest probability first."""
        missing = [document.id for document in documents if document.score is None]
        if missing:
            raise DataError(
                "documents", "have scores", f"none for {missing[0]!r}", "Rank them first."
            )
        result = []
        metadata = [document.meta for document in documents]
        scores = [document.score for document in documents]
        for place, probability in self.cutoff.kept(scores, metadata):
            document = documents[place]
            meta = {**document.meta, PROBABILITY: probability, "score": document.score}
            result.append(replace(document, meta=meta, score=probability))
        return {"documents": result}

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack saves it."""
        saved: dict[str, Any] = _haystack.default_to_dict(self, **init_parameters(self.cutoff))
        return saved

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Any:
        """The component as it was saved."""
        return _haystack.default_from_dict(cls, saved)


def init_parameters(cutoff: Cutoff) -> dict[str, Any]:
    """What makes a component of this cutoff, as text and numbers."""
    return {
        "fitted": cutoff.fitted.to_json(),
        "outputs": type(cutoff.outputs).__name__,
        "threshold": cutoff.threshold,
    }


def _outputs(name: str) -> Outputs:
    known = {each.__name__: each for each in Outputs.__subclasses__()}
    if name not in known:
        raise DataError("outputs", f"be one of {', '.join(known)}", f"{name!r}")
    return known[name]()


ProbabilityCutoff.run.__annotations__ |= {"documents": _DOCUMENTS, "return": dict[str, Any]}
_typed: Any = _haystack.component.output_types(documents=_DOCUMENTS)
# Haystack's decorators have no types, and what they return replaces the method and the class.
ProbabilityCutoff.run = _typed(ProbabilityCutoff.run)  # type: ignore[method-assign]  # see above
ProbabilityCutoff = _haystack.component(ProbabilityCutoff)  # type: ignore[misc]  # see above
