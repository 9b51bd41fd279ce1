"""Docstring examples as code blocks: Markdown would read `>>>` as nested quotations."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)


class FencedExamples(Extension):
    """A griffe extension that puts every docstring example into a fenced code block."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for every documented object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The docstring with its examples as fenced code blocks."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)
