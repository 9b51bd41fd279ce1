"""Names and tables that the tests of the report share."""

import json
import re
from typing import Any

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{7*7}}",
    "{{style}}",
    "\u202eevil\u2028line\u2029",
    "שלום 👩‍🚀",
    "<!--<script>",
    "&lt;b&gt; ' \\ ]]>",
)
"""Names that would break a page which treats them as markup, code or a template."""


def data_of(page: str) -> dict[str, Any]:
    """The JSON data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])
