"""Checks the Spark session of a job, which somebody else has made.

Promise: a setting that would let Spark run a task twice, or number the tasks differently in a replay, is refused before
a checkpoint is made. The refusal prints the lines to write, and where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from oncebench.delivery.errors import RefusedStart

# What Spark reads once, when its context starts. A failed task may have written: a new driver must replay the batch.
AT_START: Mapping[str, str] = {
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",
}
# The one setting of AT_START whose default is the value that is needed.
_BY_DEFAULT = {"spark.speculation": "false"}
# Local masters ignore spark.task.maxFailures: `local[N]` tries a task once, `local[N, F]` F times.
_LOCAL = re.compile(r"local(?:\[[^,\]]+(?:,\s*(\d+)\s*)?\])?")
# Versions of Spark under which jobs were run and killed (docs/your_own_job.md), without the last number. Another one
# may run tasks or write its offset log in another way, and a guarantee would break silently.
VERSIONS = ("4.2",)
SHUFFLES = "spark.sql.shuffle.partitions"
ADAPTIVE = "spark.sql.adaptive.enabled"
LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
# Settings with this prefix are the variables of executors.
EXECUTORS = "spark.executorEnv."
REDACTION = "spark.redaction.regex"
# Spark's default of that setting. Spark hides a setting if this is in its name or its value.
REDACTED = "(?i)secret|password|token|access[.]?key"
_PASSWORD_IN_URI = re.compile(r"://[^/?#@\s]*:[^/?#\s]+@")


def refuse_unknown_spark(version: str) -> None:
    """Refuses a version of Spark that is not in VERSIONS, with what was found under it.

    Args:
        version: of the JVM's Spark, for example `4.1.3`.

    Raises:
        RefusedStart: names the versions that are accepted.
    """
    minor = ".".join(version.split(".")[:2])
    found = {
        "4.0": "Four kills under 4.0.0 lost and duplicated no row, but most contract tests have not been run under it",
        "4.1": "Under 4.1.1, Spark's Kafka source ended the query after each replay of a batch (SPARK-57438)",
    }
    if minor not in VERSIONS:
        untried = "No test has killed a job under this version, and it may break a guarantee silently"
        raise RefusedStart(
            f"this session runs Spark {version}, and deliver() accepts {', '.join(VERSIONS)} only. "
            f"{found.get(minor, untried)}. Run the job with an accepted version."
        )


def refuse_unfit_rows(rows: DataFrame) -> None:
    """Refuses rows that no driver in this process can deliver.

    Raises:
        RefusedStart: the rows are not a stream, or their session is one of Spark Connect.
    """
    if type(rows).__module__.startswith("pyspark.sql.connect."):
        raise RefusedStart(
            "these rows belong to a session of Spark Connect. There the code of foreachBatch runs on the server, and "
            "this process cannot keep the journal of its batches. Start the job in a classic session: "
            'SparkSession.builder.master(...).config("spark.api.mode", "classic"), without .remote(...) and without '
            "SPARK_REMOTE."
        )
    if not rows.isStreaming:
        raise RefusedStart(
            "these rows are not a stream, so they have no batches and no checkpoint. Read them with spark.readStream."
        )


def refuse_unfit_settings(rows: DataFrame, per_task: bool, of_sink: Mapping[str, str]) -> None:
    """Refuses settings of the rows' session that would break a guarantee.

    Args:
        rows: of a classic session.
        per_task: whether the sink keeps its marks by task number.
        of_sink: settings that Spark needs for the kind of sink.

    Raises:
        RefusedStart: names each setting, and the line to write; or the session's Spark is of a version that was not
            tested.
    """
    spark = rows.sparkSession
    refuse_unknown_spark(spark.version)
    context = spark.sparkContext
    given = dict(context.getConf().getAll())
    lines = wrong_at_start(str(context.master), given)
    if lines:
        raise RefusedStart(
            "this Spark session may run a task of a batch twice, and the first run may have written. Write before "
            f"SparkSession.builder...getOrCreate(), or into spark-defaults.conf: {' '.join(lines)}"
        )
    lines = missing_of_sink(of_sink, given)
    if lines:
        raise RefusedStart(
            "this Spark session lacks settings of the sink. Write before SparkSession.builder...getOrCreate(), or into "
            f"spark-defaults.conf: {' '.join(lines)}"
        )
    wanted = {LARGE_TYPES: "false", **({ADAPTIVE: "false"} if per_task else {})}
    # Without a default of ours: Spark's own counts where the job sets nothing, and it is `true` for ADAPTIVE.
    wrong = [name for name, value in wanted.items() if str(spark.conf.get(name)).lower() != value]
    if wrong:
        each = " ".join(f'spark.conf.set("{name}", "{wanted[name]}")' for name in wrong)
        why = {
            ADAPTIVE: "adaptive execution joins small partitions, and a replay would number its tasks differently",
            LARGE_TYPES: "the writers do not read Arrow's large types",
        }
        raise RefusedStart(f"{'; '.join(why[name] for name in wrong)}. Write before deliver(...): {each}")


def refuse_shown_secrets(rows: DataFrame, variables: Sequence[str]) -> None:
    """Refuses a password that Spark's web page, its REST API and its event log would show.

    Args:
        rows: of a classic session.
        variables: names of variables that the sink's tasks read.

    Raises:
        RefusedStart: names the setting, without its value, and what to write instead.
    """
    shown = shown_secrets(variables, dict(rows.sparkSession.sparkContext.getConf().getAll()))
    if shown:
        raise RefusedStart(
            f"the setting {shown[0]} is a URI with a password, and Spark's web page and event log show it. Remove the "
            f"password from the URI, and set it as {EXECUTORS}PGPASSWORD, which Spark hides. Or let {REDACTION} "
            "match the setting's name."
        )


def shown_secrets(variables: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """Returns the names of executors' variables with a password that Spark does not hide.

    The password is in a URI.
    """
    names = [f"{EXECUTORS}{variable}" for variable in variables]
    found = [name for name in names if _PASSWORD_IN_URI.search(settings.get(name, ""))]
    try:
        hides = re.compile(settings.get(REDACTION, REDACTED)).search
    except re.error:  # a pattern that only Java reads: what it hides is not known here
        return []
    return [name for name in found if not hides(name) and not hides(settings[name])]


def wrong_at_start(master: str, settings: Mapping[str, str]) -> list[str]:
    """Returns the lines for a session's builder that mend its settings.

    Args:
        master: Spark's master.
        settings: those of the context that are not Spark's defaults.
    """
    local = _LOCAL.fullmatch(master)
    if local is not None and int(local[1] or 1) > 1:
        return [f'.master("{master.split(",", maxsplit=1)[0]}]")']
    return [
        f'.config("{name}", "{value}")'
        for name, value in AT_START.items()
        if not (local is not None and name == "spark.task.maxFailures")
        and settings.get(name, _BY_DEFAULT.get(name, "")).lower() != value
    ]


def missing_of_sink(of_sink: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Returns the lines for a session's builder that add what a kind of sink needs.

    Extensions and catalogs only: all other settings of a kind make it faster. A session may have more extensions.
    """
    return [
        f'.config("{name}", "{value}")'
        for name, value in of_sink.items()
        if name.startswith("spark.sql.") and value not in settings.get(name, "").split(",")
    ]


def tasks_per_batch(rows: DataFrame) -> int:
    """Returns how many tasks a batch has after a shuffle, by the session's setting."""
    return int(str(rows.sparkSession.conf.get(SHUFFLES)))
