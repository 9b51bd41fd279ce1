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
        scores = [document.score for document in documents]
        metadata = [document.meta for document in documents]
        return {"documents": self.cutoff.cut(documents, scores, metadata, _copied)}

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack saves it."""
        return _haystack.default_to_dict(self, **init_parameters(self.cutoff))

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Any:
        """The component as it was saved."""
        return _haystack.default_from_dict(cls, saved)


def _copied(document: Any, new: dict[str, float]) -> Any:
    return replace(document, meta={**document.meta, **new}, score=new[PROBABILITY])


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
