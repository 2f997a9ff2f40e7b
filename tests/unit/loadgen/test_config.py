"""The configuration of a load: valid ones are read, errors name the field and the remedy."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from loadgen.__main__ import main
from loadgen.client import number_setting, settings
from loadgen.config import LoadConfig, read_config
from loadgen.errors import ConfigError
from tests.unit.kafka_access.files import access, login

GOOD: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:9092",
    "topic": "input",
    "rate": 1_000,
    "sessions": 10,
    "shape": "constant",
    "seed": 42,
    "ledger_dir": "/nowhere/ledger",
    "status_path": "/nowhere/load.jsonl",
    "client": {},
}


def test_a_good_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    config = read_config(tmp_path / "config.json")
    assert (config.topic, config.events, config.ledger_dir) == ("input", 1_000, Path("/nowhere/ledger"))


def test_optional_fields_have_defaults() -> None:
    needed = {name: GOOD[name] for name in ("bootstrap_servers", "topic", "rate", "sessions", "ledger_dir")}
    config = LoadConfig.from_mapping(needed)
    assert (config.seed, config.shape, config.status_path, config.client) == (0, "constant", None, {})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("rate", 0, "rate: 0 events per second is not possible"),
        ("rate", -1, "rate: -1 events per second is not possible"),
        ("rate", math.nan, "rate: nan events per second is not possible"),
        ("rate", "fast", "rate: 'fast' is neither"),
        ("rate", 10**400, "rate: 100000000000000000000000... events per second is not possible"),
        ("replayed", {"path": "f", "passes": 0}, "replayed: passes: 0 is wrong: Input should be greater than or"),
        ("replayed", {"pat": "f"}, "replayed: path: "),
        ("sessions", 0, "sessions: 0 is not a whole number from 1 to 100000000"),
        ("sessions", 1.5, "sessions: 1.5 is not a whole number"),
        ("sessions", True, "sessions: True is not a whole number"),
        ("sessions", 10**8 + 1, "sessions: 100000001 is not a whole number"),
        ("seed", -1, "seed: -1 is not a whole number from 0"),
        ("seed", 2**64, "seed: 18446744073709551616 is not a whole number"),
        ("topic", "", "topic: '' is not a topic name"),
        ("topic", "a b", "topic: 'a b' is not a topic name"),
        ("topic", "..", "topic: '..' is not a topic name"),
        ("topic", "x" * 250, "is not a topic name"),
        ("bootstrap_servers", "", "bootstrap_servers: '' is not host:port"),
        ("bootstrap_servers", None, "bootstrap_servers: None is not host:port"),
        ("shape", "wavy", "shape: 'wavy' is not known; choose from: constant | ramp:FROM_RATE | burst:"),
        ("events_per_session", 0, "events_per_session: 0 is not a whole number from 1 to 100"),
        ("record_bytes", -1, "record_bytes: -1 is not a whole number from 0 to 60000"),
        ("record_bytes", 60001, "record_bytes: 60001 is not a whole number from 0 to 60000"),
        ("events_per_session", 101, "events_per_session: 101 is not a whole number from 1 to 100"),
        ("shape", 3, "shape: 3 is not text"),
        ("ledger_dir", 3, "ledger_dir: 3 is not a path"),
        ("ledger_dir", None, "ledger_dir: None is not a path"),
        ("status_path", 3, "status_path: 3 is not a path"),
        ("client", [], "client: must be an object of librdkafka settings"),
        (
            "client",
            {"linger.ms": None},
            "client: the value of 'linger.ms' must be text, a number or true/false",
        ),
        ("client", {"acks": 0}, "client: 'acks' cannot be set: an acknowledgement must mean"),
        ("client", {"enable.idempotence": False}, "client: 'enable.idempotence' cannot be set: without it"),
        ("client", {"partitioner": "random"}, "client: 'partitioner' cannot be set"),
    ],
)
def test_an_error_names_the_field_its_value_and_what_is_expected(field: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        LoadConfig.from_mapping({**GOOD, field: value})
    assert said in str(error.value)


def test_sessions_that_never_end_have_fewer_events() -> None:
    assert LoadConfig.from_mapping({**GOOD, "events_per_session": 3}).events == 30


@pytest.mark.parametrize("field", ["bootstrap_servers", "topic", "rate", "sessions", "ledger_dir"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: is missing; the config needs bootstrap_servers, topic"):
        LoadConfig.from_mapping({name: value for name, value in GOOD.items() if name != field})


def test_a_mistyped_field_is_named() -> None:
    with pytest.raises(ConfigError, match="sesions: is not a field of the config; known are bootstrap_servers"):
        LoadConfig.from_mapping({**GOOD, "sesions": 3})


def test_a_config_made_in_python_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rate: 0"):
        LoadConfig("127.0.0.1:9092", "input", 0, 10, tmp_path)


def test_secrets_in_client_settings_are_not_printed() -> None:
    config = LoadConfig.from_mapping({**GOOD, "client": {"sasl.password": "hunter2"}})
    assert "hunter2" not in repr(config)


def test_a_user_may_tune_the_client_but_not_its_guarantees() -> None:
    config = LoadConfig.from_mapping({**GOOD, "client": {"linger.ms": "50", "compression.type": "lz4"}})
    effective = settings(config)
    assert (effective["linger.ms"], effective["compression.type"]) == ("50", "lz4")
    assert (effective["enable.idempotence"], effective["acks"]) == (True, "all")
    assert effective["allow.auto.create.topics"] is False
    assert number_setting(config, "linger.ms") == 50


def test_the_settings_of_a_secured_kafka_come_from_its_file(tmp_path: Path) -> None:
    conf = access(tmp_path, login("PLAIN", "alice", "hunter2")).conf
    config = LoadConfig.from_mapping({**GOOD, "kafka_conf": conf, "kafka": {"client.id": "me"}})
    effective = settings(config)
    assert (effective["sasl.username"], effective["sasl.password"]) == ("alice", "hunter2")
    assert (effective["client.id"], effective["bootstrap.servers"]) == ("me", GOOD["bootstrap_servers"])
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kafka_conf": "/nowhere"}, "/nowhere cannot be read"),
        ({"kafka": {"acks": "0"}}, "acks cannot be set here"),
        ({"kafka": {"client.id": 3}}, "kafka: the value of 'client.id' must be text"),
    ],
)
def test_a_wrong_setting_of_the_cluster_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LoadConfig.from_mapping({**GOOD, **fields})


@pytest.mark.parametrize("value", ["soon", 0, "0", -1, 0.5, float("inf"), True])
@pytest.mark.parametrize("name", ["delivery.timeout.ms", "queue.buffering.max.messages"])
def test_a_number_setting_with_another_value_is_named(name: str, value: Any) -> None:
    config = LoadConfig.from_mapping({**GOOD, "client": {name: value}})
    with pytest.raises(ConfigError, match=rf"^client: '{re.escape(name)}' must be a whole number from 1 on$"):
        number_setting(config, name)


@pytest.mark.parametrize("field", ["client", "kafka"])
def test_a_setting_that_the_load_reads_has_one_name(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: 'message\.timeout\.ms' cannot be set: .*delivery\.timeout\.ms"):
        LoadConfig.from_mapping({**GOOD, field: {"message.timeout.ms": "600000"}})


def test_the_other_name_in_a_shared_file_refuses_no_load(tmp_path: Path) -> None:
    conf = access(tmp_path, {"message.timeout.ms": "60000"}).conf
    config = LoadConfig.from_mapping({**GOOD, "kafka_conf": conf})
    assert "message.timeout.ms" not in settings(config)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[]", "must be a JSON object"), ('{"rate": NaN}', "is missing")]
)
def test_a_bad_file_ends_with_2_and_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"loadgen: {path}: ")
    assert said in stderr
    assert stderr.count("\n") == 1


def test_a_missing_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    assert "none.json: cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_wrong_arguments_end_with_2_and_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m loadgen CONFIG.json\n"


def test_an_unknown_librdkafka_setting_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = {"ledger_dir": str(tmp_path / "ledger"), "status_path": str(tmp_path / "load.jsonl")}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GOOD, **here, "client": {"linger.mss": 3}}))
    assert main([str(path)]) == 2
    assert "client: No such configuration property" in capsys.readouterr().err
    assert not (tmp_path / "ledger").exists()
