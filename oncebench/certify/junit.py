"""Writes JUnit XML: one test case per scenario, with its command and examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from oncebench.certify.evidence import examples, findings, name_of
from oncebench.certify.kept import STRENGTH, Outcome
from oncebench.certify.request import Request

# What an XML 1.0 document cannot contain (https://www.w3.org/TR/xml/#charsets). A user's row or error may have it.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(request: Request, outcomes: Sequence[Outcome]) -> str:
    """Returns the outcomes as JUnit XML.

    A scenario is a failure if it breaks the required guarantee, by default exactly-once. A scenario without an answer
    is skipped.
    """
    guarantee = request.require or STRENGTH[0]
    failed = sum(bool(each.broken(guarantee)) for each in outcomes)
    skipped = sum(bool(each.unanswered(guarantee)) for each in outcomes)
    suite = ElementTree.Element("testsuite", name=f"oncebench certify {guarantee}", tests=str(len(outcomes)),
                                failures=str(failed), skipped=str(skipped))  # fmt: skip
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=name_of(request.given), name=outcome.scenario.name)
        if outcome.unanswered(guarantee):
            ElementTree.SubElement(case, "skipped", message=_shown(outcome.unanswered(guarantee)))
        elif outcome.broken(guarantee):
            failure = ElementTree.SubElement(case, "failure", message=_shown(findings(outcome, guarantee)))
            failure.text = _shown("\n".join(examples(outcome, guarantee)))
        ElementTree.SubElement(case, "system-out").text = request.command(outcome.scenario)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _shown(text: str) -> str:
    """Returns the text with an escape like `\\x1b` in place of each character that XML cannot contain."""
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)
