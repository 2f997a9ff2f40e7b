"""The page: its template with style and scripts put in, and a policy that lets nothing in but its own data.

Promise: no request leaves the page but the one for data.js beside it. The policy names the inline style and script by
their hashes and data.js by a nonce that depends on the data, so that no text in a report can have known it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files

STYLES = ("colours.css", "page.css", "tables.css", "plots.css", "elsewhere.css")  # later ones have the last word
# In the order in which they need one another; all in one function, so that the page has one global, its data.
SCRIPTS = (
    "elements.js", "figures.js", "state.js", "chips.js", "runs_named.js", "about.js", "matrix.js", "cost.js",
    "tradeoff.js", "latency.js", "timeline.js", "returns.js", "all_runs.js", "start.js",
)  # fmt: skip
_MARK = re.compile(r"\{\{(\w+)\}\}")


def page(data: str) -> str:
    """index.html for this data.js.

    Raises:
        ValueError: a script or the style could end its own element.
    """
    style = "\n" + "\n".join(map(_source, STYLES))
    script = '\n(() => {\n"use strict";\n' + "\n".join(map(_source, SCRIPTS)) + "})();\n"
    if "</style" in style or "</script" in script:
        raise ValueError("a source of the page holds the end of its own element")
    nonce = _digest(data)
    policy = "; ".join((
        "default-src 'none'",
        f"script-src 'nonce-{nonce}' 'sha256-{_digest(script)}'",
        f"style-src 'sha256-{_digest(style)}'",
        "img-src data:",  # the empty icon, or a browser asks the server for one
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip
    return _filled(_source("page.html"), {"policy": policy, "nonce": nonce, "style": style, "script": script})


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Each mark of the text replaced, once; what looks like a mark in a part stays."""
    return _MARK.sub(lambda mark: parts[mark[1]], text)


def _source(name: str) -> str:
    return files("oncebench.site").joinpath("template", name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
