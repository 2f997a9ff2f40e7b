"""Every message of a pipeline's end is listed, is short, and has a remedy.

It names only what exists.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections import Counter

import pytest

from oncebench.delivery.failpoints import POINTS
from oncebench.delivery.failures.postgres import OF_JOBS
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig
from tools.endings import PAGE, Ending, endings, page

ENDINGS = endings()
MESSAGES = [each for each in ENDINGS if each.code != "part"]
MOST_WORDS = 25  # of a sentence; a value counts as one word
MOST_SENTENCES = 3  # what is wrong and where, what is left untouched, what to do
# A sentence about what to do begins with one of these, or says what a start or restart does.
IMPERATIVE = re.compile(
    r"(?:^|[.:;,(] |V |or |and |then )(?:call|cast|change|check|choose|compare|correct|create|drop|enable|end|ensure|"
    r"give|grant|install|let|look|lower|make|mend|mount|move|name|put|raise|read|reject|remove|rename|restore|run|"
    r"select|set|start|take|use|write)\b|\b[Aa] restart\b|the next start|start again|is needed|needs a\b|do not set|"
    r"must name|must hold|must be",
    re.IGNORECASE,
)
# Texts that are a value as a whole: their parts are checked where they are made.
ONLY_VALUES = re.compile(r"[^{}]{0,40}(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]{0,30})+")
# These end in a value with the next step (`remedy`).
WITH_REMEDY = ("oncebench/delivery/deterministic_plan.py", "oncebench/sinks/postgres/starting/preparing.py")
FIELDS = {field.name for field in dataclasses.fields(PipelineConfig)}
# Names with a low line that are no setting of ours.
FOREIGN = {
    "max_prepared_transactions", "max_connections", "max_stack_depth", "pg_prepared_xacts", "pg_stat_activity",
    "pg_terminate_backend", "search_path", "row_id", "application_name", "try_cast", "try_divide", "try_add",
    "try_multiply", "try_mod", "try_element_at", "to_json", "connect_timeout",
    "default_transaction_read_only", "target_session_attrs", "oncebench_epochs", "pg_hba", "to_pylist",
    "pg_signal_backend", "my_module", "write_batch", "journal_mode", "make_valid_utf8",
}  # fmt: skip
# Names with dots: settings of brokers, topics, clients, Spark and Pravega, and files.
SETTINGS = {
    "delta.columnMapping.mode",
    "bootstrap.servers", "compression.type", "cleanup.policy", "max.message.bytes", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms", "min.insync.replicas", "offset.metadata.max.bytes", "offsets.retention.minutes",
    "sasl.jaas.config", "sasl.mechanism", "security.protocol", "segment.bytes", "transaction.max.timeout.ms",
    "transactional.id.expiration.ms", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
    "spark.sql.streaming.stateStore.providerClass", "spark.sql.streaming.checkpointFileManagerClass",
    "spark.driver.memory", "spark.executor.memory", "spark.executorEnv", "controller.transaction.lease.count.min",
    "spark.readStream", "builder.master", "rows.repartition", "rows.writeStream.format", "spark.executorEnv.V",
    "spark.executorEnv.PGPASSWORD",
    "spark.api.mode", "spark.sql.shuffle.partitions", "spark.sql.streaming.queryEvolution", "spark.driver.host",
    "spark.executor.cores", "asyncio.run",
}  # fmt: skip
FILES = (".py", ".sh", ".conf", ".properties", ".json", ".yaml")
PROGRAMS = {"kafka-acls.sh": {"--bootstrap-server", "--add", "--allow-principal", "--operation", "--topic", "--group",
                              "--transactional-id", "--resource-pattern-type", "--cluster"},
            "kafka-consumer-groups.sh": {"--bootstrap-server", "--describe", "--members", "--all-groups"},
            "kafka-configs.sh": {"--bootstrap-server", "--alter", "--entity-type", "--entity-name", "--add-config"},
            "kafka-transactions.sh": {"--bootstrap-server", "--topic", "--partition", "--start-offset"}}  # fmt: skip
OPTIONS = {"--accept-gap"}  # of `python -m pipeline`


def plain(text: str) -> str:
    """A message without the code of its values."""
    before = None
    while before != text:
        before, text = text, re.sub(r"\{[^{}]*\}", "V", text)
    return text


def named(ending: Ending) -> str:
    return f"{ending.place} {ending.text[:60]}"


def test_the_page_lists_every_ending() -> None:
    assert PAGE.read_text() == page(), "a message has changed: run `python -m tools.endings` and read the page's diff"


def test_the_list_has_the_endings_that_were_counted() -> None:
    counted = Counter(each.code for each in ENDINGS)
    assert counted["1"] + counted["2"] + counted["1 or 2"] > 300
    assert min(counted.values()) >= 3


@pytest.mark.parametrize("ending", MESSAGES, ids=named)
def test_a_message_says_what_to_do(ending: Ending) -> None:
    found = ending.place in WITH_REMEDY or IMPERATIVE.search(plain(ending.text))
    assert found or ONLY_VALUES.fullmatch(ending.text), ending.text


def test_no_message_lets_a_person_end_a_jobs_prepared_transaction() -> None:
    about = [each.text for each in ENDINGS if re.search(r"\b[Ee]nd\b.*", each.text) and "pg_prepared" in each.text]
    assert len(about) == 4, "slots of a start or task, a lock, and two codes"
    assert [text for text in about if OF_JOBS not in text] == []


@pytest.mark.parametrize("ending", ENDINGS, ids=named)
def test_a_message_has_short_sentences(ending: Ending) -> None:
    sentences = re.split(r"(?<=[^.]\.)\s+(?!--)", plain(ending.text).strip())
    assert [each for each in sentences if len(each.split()) > MOST_WORDS] == []
    assert len(sentences) <= MOST_SENTENCES


@pytest.mark.parametrize("ending", ENDINGS, ids=named)
def test_a_message_names_only_settings_and_commands_that_exist(ending: Ending) -> None:
    text = plain(ending.text)
    settings = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text))
    assert settings <= FIELDS | FOREIGN
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    theirs = {option for program, known in PROGRAMS.items() if program in text for option in known}
    assert options <= OPTIONS | theirs
    dotted = set(re.findall(r"\b[a-z_]+(?:\.[a-zA-Z]+)+\b", text.replace("msV", "ms")))
    assert {name for name in dotted - SETTINGS if not name.endswith(FILES)} == set()
    quoted = set(re.findall(r"`([a-z][a-z_]+)`", text))
    assert quoted <= FIELDS | set(SINKS) | set(POINTS) | set(keyword.kwlist)
