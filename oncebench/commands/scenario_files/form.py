"""The form of a scenario file: TOML, with options of `oncebench run` as keys.

Each key is the option without its dashes.

Promise: a file with an unknown key, a wrong type or a secret is refused, with its line and what to do. Values that the
command line would refuse are refused later, by the options themselves (`oncebench.commands.scenario_files.argument`).

Failures: the file cannot be read, or is refused (`UserError`, exit code 2).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from oncebench.commands.scenario_files.lines import Lines
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.refused import is_secret
from oncebench.redaction import has_secret, is_secret_setting

# What pydantic calls a wrong type -> the words of a refusal.
_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "string_type": "a text in quotes", "list_type": "a list of texts",
}  # fmt: skip


class Form(BaseModel):
    """The keys of a file, all optional; an alias has dashes in place of underscores."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", "-"))

    sink: str | None = None
    guarantee: str | None = None
    variant: str | None = None
    fault: list[str] | None = None
    random_kills: int | None = None
    outage: float | None = None
    workload: str | None = None
    records: str | None = None
    key: str | None = None
    passes: int | None = None
    rate: float | str | None = None
    duration: float | None = None
    sessions: int | None = None
    shape: str | None = None
    skew: float | None = None
    record_bytes: int | None = None
    seed: int | None = None
    trigger: int | None = None
    partitions: int | None = None
    open_sessions: int | None = None
    max_events_per_batch: int | None = None
    transaction_timeout: int | None = None
    on_lost: str | None = None
    checkpoint: str | None = None
    checkpoint_writing: str | None = None
    state_store: str | None = None
    master: str | None = None
    cluster: int | None = None
    spark_conf: list[str] | None = None
    warmup: float | None = None
    start_timeout: float | None = None
    brokers: int | None = None
    replication: int | None = None
    generators: int | None = None
    observers: int | None = None
    bootstrap_servers: str | None = None
    kafka_conf: str | None = None
    kafka_set: list[str] | None = None
    postgres: str | None = None


# Keys whose values are paths.
PATHS = ("kafka-conf", "records")
KEYS = tuple(field.alias or name for name, field in Form.model_fields.items())


def read_form(path: Path) -> tuple[dict[str, Any], Lines]:
    """Reads a file; returns its values by key, and its lines.

    A relative path in PATHS begins at the file's folder.

    Raises:
        UserError: the file cannot be read, is not TOML, or is refused (exit code 2).
    """
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
        values = tomllib.loads(text)
    except OSError as error:
        raise UserError(
            f"the scenario file {path} cannot be read: {error.strerror}. `oncebench run --save FILE` writes one",
            exit_code=ExitCode.USAGE,
        ) from None
    except ValueError as error:  # not UTF-8, or not TOML; the text has the line
        raise UserError(f"{path} is not a TOML file: {error}. Correct the file", exit_code=ExitCode.USAGE) from None
    lines = Lines(path, text)
    try:
        Form.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refused(lines, str(first["loc"][0]), first["type"], first["loc"][1:], values) from None
    for key, why in secrets(values):
        raise lines.refusal(key, why)
    for key in PATHS:
        if values.get(key):  # an empty text means none, as on the command line
            values[key] = os.path.normpath(path.parent / values[key])
    return values, lines


def secrets(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (key, message) for each value with a secret, which no file of this kind may have.

    The message does not repeat the value.
    """
    for key, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            name, _, set_to = str(text).partition("=")
            if key == "kafka-set" and is_secret(name):
                yield (
                    key,
                    (
                        f"{key} {name} holds a secret, and this file is shared. Write the secret into the file of "
                        "kafka-conf, where ${env:NAME} names an environment variable"
                    ),
                )
            elif key == "spark-conf" and is_secret_setting(name, set_to):
                yield key, f"{key} {name} holds a secret, and this file is shared. Leave it out"
            elif has_secret(str(text)):
                yield (
                    key,
                    (
                        f"{key} contains a password, and this file is shared. Leave the password out, and set "
                        "PGPASSWORD or PGPASSFILE for PostgreSQL"
                    ),
                )


def _refused(lines: Lines, key: str, kind: str, inside: tuple[Any, ...], values: Mapping[str, Any]) -> UserError:
    if kind == "extra_forbidden":
        near = get_close_matches(key, KEYS, 1)
        meant = f"Write {near[0]}" if near else "Remove it; the keys are the options of `oncebench run` without dashes"
        return lines.refusal(key, f"there is no key {key!r}. {meant}")
    if key == "rate":
        expected = 'a number of events per second, or "max"'
    elif inside:
        expected = "a list of texts in quotes"
    else:
        expected = _EXPECTED.get(kind, "another type")
    return lines.refusal(key, f"{key} = {values[key]!r} is not {expected}. Correct the value")
