"""The exit code of a series: kept, broken or not tested; also for broken sinks."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.errors import ExitCode
from oncebench.measure import exit_code


def report(verdict: str, *codes: str, sink: str = "kafka", variant: str = "two-phase") -> dict[str, Any]:
    cell = {"sink": sink, "guarantee": "exactly-once", "variant": variant}
    return {"verdict": verdict, "anomalies": dict.fromkeys(codes, 1), "cell": cell}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["kept", "kept"], ExitCode.KEPT),
        (["kept", "broken"], ExitCode.BROKEN),
        (["kept", "vacuous"], ExitCode.ERROR),
        (["unknown"], ExitCode.ERROR),
    ],
)
def test_the_worst_verdict_decides(verdicts: list[str], code: int) -> None:
    assert exit_code([report(verdict) for verdict in verdicts]) == code


@pytest.mark.parametrize(
    ("verdict", "codes", "code"),
    [
        ("broken", ["DUP"], ExitCode.KEPT),
        ("broken", ["LOSS"], ExitCode.ERROR),
        ("kept", [], ExitCode.ERROR),
        ("vacuous", ["DUP"], ExitCode.ERROR),
    ],
)
def test_a_deliberately_broken_sink_must_show_its_documented_anomaly(verdict: str, codes: list[str], code: int) -> None:
    assert exit_code([report(verdict, *codes, sink="broken-kafka", variant="no-marker")]) == code
