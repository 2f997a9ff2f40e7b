"""What the pipeline asks of Java."""

from __future__ import annotations

import re
from dataclasses import replace

from pipeline.spark.session import _STOPPED, not_started, settings
from tests.unit.pipeline.test_second_try import CONFIG

# A pipeline of three minutes at 5,000 events/s fills 53 MiB, and no more later.
FILLED_MIB = 53


def test_compiled_code_has_room_for_all_of_spark() -> None:
    java = settings(replace(CONFIG, jvm_options=()))["spark.driver.extraJavaOptions"]
    room = re.search(r"-XX:ReservedCodeCacheSize=(\d+)m", java)
    assert room is not None, "with one compiler, Java's default is 48 MiB"
    assert int(room[1]) > 2 * FILLED_MIB


def test_a_master_that_does_not_answer_may_answer_the_next_start() -> None:
    """The errors are those of Spark 4.2.

    They come after a minute with `spark://127.0.0.1:1`, and for a setting that it refuses.
    """
    away = not_started("spark://m:7077", f"java.lang.IllegalStateException: {_STOPPED}")
    assert away.restart_helps
    assert str(away).startswith("the Spark master spark://m:7077 did not take this job")
    refused = not_started("local[2]", "org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE] lots")
    assert not refused.restart_helps
    assert "[INVALID_CONF_VALUE] lots. Correct `master`, `spark`" in str(refused)
