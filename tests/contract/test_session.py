"""The session leaves an interrupt to the pipeline, which stops gently."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.contract, pytest.mark.spark]


def test_sparks_own_handler_of_an_interrupt_is_not_kept(lab: Lab, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with spark_session(sinkless(lab, tmp_path)):
        assert signal.getsignal(signal.SIGINT) is before
