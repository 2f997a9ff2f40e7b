"""Errors of both Kafka clients name the cluster and the next step.

They occur at a start and in a command.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import GroupAuthorizationFailedError, KafkaTimeoutError

from oncebench.delivery.errors import NoKafka, RefusedStart
from oncebench.jobs.start import kafka_must_answer
from oncebench.processes.ports import free_ports


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), KafkaTimeoutError("late")])
def test_the_error_of_an_absent_kafka_names_what_is_unharmed(error: Exception) -> None:
    with (
        pytest.raises(NoKafka, match=r"^Kafka at b:1 did not .* No row was read or written; start again\.$"),
        kafka_must_answer("b:1", "a"),
    ):
        raise error
    with (
        pytest.raises(NoKafka, match=r"^Kafka at b:1 did not .* What has ended stays ended; call again\.$"),
        kafka_must_answer("b:1", "a", "out", again="call again", kept="What has ended stays ended"),
    ):
        raise error


def test_an_address_where_nothing_listens_is_named_with_the_reason() -> None:
    (port,) = free_ports(1)
    servers = f"127.0.0.1:{port}"
    with (
        pytest.raises(
            NoKafka, match=rf"^Kafka at {servers} did not answer a request: .* \({servers}: connection refused\)\. "
        ),
        kafka_must_answer(servers, "a"),
    ):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), GroupAuthorizationFailedError("no")],
)
def test_a_missing_right_names_the_jobs_groups(error: Exception) -> None:
    with (
        pytest.raises(RefusedStart, match=r"^Kafka at b:1: .* --group a\. .*, then call again\.$"),
        kafka_must_answer("b:1", "a", again="call again"),
    ):
        raise error
