"""Writes JUnit XML: one test case per scenario, with its command and examples.

Promise: a reader of XML can read every result. Texts of errors have a mask in place of secrets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from oncebench.certify.evidence import examples, findings, name_of
from oncebench.certify.kept import STRENGTH, Outcome
from oncebench.certify.request import Request
from oncebench.redaction import redacted

# What an XML 1.0 document cannot contain (https://www.w3.org/TR/xml/#charsets). A user's row, error or option may have
# it.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The name of the test case for an error that ended the command.
WHOLE = "oncebench certify"


def junit(request: Request, outcomes: Sequence[Outcome], error: str = "") -> str:
    """Returns the outcomes as JUnit XML.

    A scenario is a failure if it breaks the required guarantee, by default exactly-once. A scenario without an answer
    is an error, because servers count a skipped test as a success.

    Args:
        error: why the command ended without a certificate, which becomes one more test case; empty if it has one.
    """
    guarantee = request.require or STRENGTH[0]
    sink = name_of(request.given)
    failed = sum(bool(each.broken(guarantee)) for each in outcomes)
    errors = sum(bool(each.unanswered(guarantee)) for each in outcomes) + bool(error)
    suite = ElementTree.Element("testsuite")
    _set(suite, name=f"oncebench certify {guarantee}", tests=str(len(outcomes) + bool(error)), failures=str(failed),
         errors=str(errors))  # fmt: skip
    for outcome in outcomes:
        case = _add(suite, "testcase", classname=sink, name=outcome.scenario.name)
        if outcome.unanswered(guarantee):
            _add(case, "error", message=redacted(outcome.unanswered(guarantee)))
        elif outcome.broken(guarantee):
            text = redacted("\n".join(examples(outcome, guarantee)))
            _add(case, "failure", text, message=findings(outcome, guarantee))
        _add(case, "system-out", request.command(outcome.scenario))
    if error:
        _add(_add(suite, "testcase", classname=sink, name=WHOLE), "error", message=redacted(error))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add(parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    made = ElementTree.SubElement(parent, tag)
    made.text = None if text is None else _shown(text)
    _set(made, **attributes)
    return made


def _set(element: ElementTree.Element, **attributes: str) -> None:
    for name, text in attributes.items():
        element.set(name, _shown(text))


def _shown(text: str) -> str:
    """Replaces each character that XML cannot contain with an escape like `\\x1b`."""
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)
