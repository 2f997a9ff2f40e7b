"""A running pipeline names its login when Kafka begins to refuse the login.

The pipeline's clients only see that time passes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure, PipelineError
from oncebench.delivery.journal import Identity, open_journal
from pipeline.failures import advised
from tests.integration.kafka_access.secured import PASSWORD, Secured
from tests.unit.pipeline.test_pipeline_config import config

pytestmark = pytest.mark.integration
LATE = "topic out acknowledged 0 of 20 rows within 120 s."
RESTART = "A restart of the pipeline writes the batch again."


@pytest.fixture
def said(secured: Secured, tmp_path: Path) -> Callable[[str], PipelineError]:
    """The last words of a pipeline with this password, after rows were not acknowledged in time."""
    journal = open_journal(tmp_path / "checkpoint", Identity("mine", "kafka", "exactly-once", "two-phase", 2))

    def words(password: str) -> PipelineError:
        made = config(tmp_path, bootstrap_servers=secured.servers(), kafka=secured.settings(password=password))
        return advised(DeliveryFailed(f"{LATE} {RESTART}"), made, journal, lambda: None)

    return words


def test_late_rows_are_permanent_if_the_login_is_refused(
    secured: Secured, said: Callable[[str], PipelineError]
) -> None:
    found = said("canary-wrong")
    assert isinstance(found, PermanentFailure)
    assert str(found).startswith(f"{LATE} A restart does not help. Kafka at {secured.servers()}: ")
    assert "refuses the login of user 'alice' with SCRAM-SHA-256" in str(found)
    assert str(found).endswith("Correct sasl.jaas.config, then start again.")


def test_late_rows_stay_transient_if_the_login_works(said: Callable[[str], PipelineError]) -> None:
    assert said(PASSWORD).args == (f"{LATE} {RESTART}",)
