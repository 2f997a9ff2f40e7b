"""Reads docs/at_work.md: its ten steps, its file of settings, and its lines for a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tests import ROOT

PAGE = (ROOT / "docs" / "at_work.md").read_text()
_USER, _AUTHORITY = "bench", "/etc/kafka/ca.pem"  # in the documented file of settings


def steps() -> Mapping[int, Sequence[str]]:
    """The commands of each step."""
    parts = re.split(r"\n\*\*(\d+)\. ", _section("Ten steps"))
    found = {}
    for number, text in zip(map(int, parts[1::2]), parts[2::2], strict=True):
        found[number] = [line for block in _blocks(text) for line in block.replace("\\\n", "").splitlines()]
    return found


def file_of_settings(user: str, authority: str) -> str:
    """The file of settings for another user and another certificate authority."""
    text = _only(block for block in _blocks(_section("The file of settings")) if "security.protocol=" in block)
    for documented, own in ((_USER, user), (_AUTHORITY, authority)):
        assert documented in text, f"the file of settings has no {documented}"
        text = text.replace(documented, own)
    return text


def job(servers: str, classes: str) -> str:
    """The job of examples/, with the lines of the page that reach a secured Kafka.

    Args:
        servers: the addresses of Kafka.
        classes: the class path of the driver, instead of packages to download.
    """
    block = _only(block for block in _blocks(_section("Your own job")) if "import KafkaAccess" in block)
    _, access, source, orders, sink, _ = [line for line in block.splitlines() if line]
    text = (ROOT / "examples" / "orders_to_kafka.py").read_text()
    for pattern, lines in (
        (r"import KafkaSink", "import KafkaAccess, KafkaSink"),
        (r'\.config\("spark\.jars\.packages", [^)]*\)', f'.config("spark.driver.extraClassPath", {classes!r})'),
        (r"orders = \(.*?\n\)\n", f"{access}\n{source}\n{orders}\n"),
        (r"sink = KafkaSink\(.*?\)\n", f"{sink}\n"),
    ):
        found = _only(match[0] for match in re.finditer(pattern, text, re.DOTALL))
        text = text.replace(found, lines)
    return text.replace("broker1:9093", servers)


def _section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def _blocks(text: str) -> list[str]:
    return re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)


def _only(found: Iterable[str]) -> str:
    (one,) = found
    return one
