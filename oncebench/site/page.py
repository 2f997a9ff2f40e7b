"""Builds the page from its template, styles, scripts and a content security policy.

Promise: the page makes one request, for the data.js next to it. The policy allows the inline style and script by their
hashes and data.js by a nonce. The nonce is a digest of the data, so no text in a report can contain it in advance.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files

# A later rule overrides an earlier one.
STYLES = ("colours.css", "page.css", "tables.css", "plots.css", "headline.css", "media.css")
# Each script uses those before it. All are wrapped in one function, so the page has one global: its data.
SCRIPTS = (
    "elements.js", "plots.js", "state.js", "filters.js", "run_details.js", "headline.js", "about.js", "matrix.js",
    "costs.js", "flat_out.js", "latency.js", "timeline.js", "engines.js", "commits.js", "recovery.js", "all_runs.js",
    "main.js",
)  # fmt: skip
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MARK = re.compile(r"\{\{(\w+)\}\}")


def page(data: str, guides: Mapping[str, str] | None = None) -> str:
    """Returns the index.html that belongs to a data.js.

    Args:
        data: the content of data.js.
        guides: pages that explain the figures, by their path from the page: what each explains.

    Raises:
        ValueError: a script or style holds the end tag of its own element.
    """
    style = "\n".join(map(_flat_style, STYLES))
    script = '\n(() => {\n"use strict";\n' + "\n".join(map(_flat, SCRIPTS)) + "})();\n"
    if "</style" in style or "</script" in script:
        raise ValueError("a script or style of the page holds the end tag of its own element")
    nonce = _digest(data)
    policy = "; ".join((
        "default-src 'none'",
        f"script-src 'nonce-{nonce}' 'sha256-{_digest(script)}'",
        f"style-src 'sha256-{_digest(style)}'",
        "img-src data:",  # the empty icon; without it a browser asks the server for one
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip
    links = ", ".join(f'<a href="{path}">{name}</a>' for path, name in (guides or {}).items())
    parts = {"policy": policy, "nonce": nonce, "style": style, "script": script}
    return _filled(_source("page.html"), parts | {"guides": f" Read on: {links}." if links else ""})


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Replaces each {{mark}} of the text once; a mark inside a replacement stays as it is."""
    return _MARK.sub(lambda mark: parts[mark[1]], text)


def _flat(name: str) -> str:
    """A script without indentation and lines of comments. No string of the sources spans lines."""
    lines = (line.strip() for line in _source(name).splitlines())
    return "".join(f"{line}\n" for line in lines if not line.startswith("//"))


def _flat_style(name: str) -> str:
    """Returns a style without comments, and without spaces between its declarations.

    No line has two declarations.
    """
    lines = (line.strip().replace(": ", ":", 1) for line in _COMMENT.sub("", _source(name)).splitlines())
    return " ".join(lines).replace("; ", ";").replace(" { ", "{").replace("} ", "}")


def _source(name: str) -> str:
    return files("oncebench.site").joinpath("template", name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
