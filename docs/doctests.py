"""Docstrings for the site: examples as code. Markdown would take `>>>` for three quotations inside one another."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)


class FencedExamples(Extension):
    """Puts a fence round every example of a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for everything that is documented."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The docstring with its examples as blocks of code."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)
