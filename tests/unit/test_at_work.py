"""The slow test of the ten steps finds its parts in docs/at_work.md.

The parts can be used.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from oncebench.kafka_access.access import KafkaAccess
from tests import at_work
from tests.unit.kafka_access.files import CERTIFICATE


def test_the_page_has_ten_steps_with_their_commands() -> None:
    found = at_work.steps()
    assert {number: len(lines) for number, lines in found.items()} == {
        1: 1, 2: 1, 3: 1, 4: 1, 5: 0, 6: 1, 7: 1, 8: 1, 9: 2, 10: 1
    }  # fmt: skip
    assert all(line.startswith("oncebench ") for lines in found.values() for line in lines)


def test_the_file_of_settings_reaches_a_kafka_with_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "canary")
    authority = tmp_path / "ca.pem"
    authority.write_text(CERTIFICATE)
    file = tmp_path / "orders.properties"
    file.write_text(at_work.file_of_settings("orders", str(authority)))
    client = KafkaAccess("broker1:9093", str(file)).client
    assert (client["sasl.username"], client["sasl.password"]) == ("orders", "canary")
    assert client["ssl.ca.location"] == str(authority)


def test_the_lines_for_a_job_replace_those_of_the_example() -> None:
    text = at_work.job("127.0.0.1:9", "/classes")
    ast.parse(text)
    assert text.count('KafkaAccess("127.0.0.1:9", conf="orders.properties")') == 1
    assert text.count("KafkaSink(") == 1
    assert "kafka=kafka" in text
    assert "broker1" not in text
    assert "spark.jars.packages" not in text
