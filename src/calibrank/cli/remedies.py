"""Messages of the library name options of any command; a command keeps the ones that it has."""

import re
from collections.abc import Collection

_SENTENCES = re.compile(r"(?<=[.?]) (?=[A-Z])")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# What another command does is no option of this one: "Add one with calibrank fit --user".
_OTHER_COMMAND = re.compile(r"\b(?:calibrank|fit) (?:[a-z]|--)")


def possible_remedies(message: str, options: Collection[str]) -> str:
    """A message without remedies that name an option which the command does not have.

    >>> possible_remedies("label must be 0 or 1, got 3. Fix the table. Or give --soft.", [])
    'label must be 0 or 1, got 3. Fix the table.'
    """
    statement, *remedies = _SENTENCES.split(message)
    kept = [remedy for remedy in remedies if _is_possible(remedy, options)]
    return " ".join([statement, *kept])


def _is_possible(remedy: str, options: Collection[str]) -> bool:
    named = _OPTION.findall(remedy)
    return all(option in options for option in named) or bool(_OTHER_COMMAND.search(remedy))
