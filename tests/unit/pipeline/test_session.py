"""What the pipeline asks of Java."""

from __future__ import annotations

import re
from dataclasses import replace

from pipeline.spark.session import settings
from tests.unit.pipeline.test_second_try import CONFIG

# A pipeline of three minutes at 5,000 events/s fills 53 MiB, and no more later.
FILLED_MIB = 53


def test_compiled_code_has_room_for_all_of_spark() -> None:
    java = settings(replace(CONFIG, jvm_options=()))["spark.driver.extraJavaOptions"]
    room = re.search(r"-XX:ReservedCodeCacheSize=(\d+)m", java)
    assert room is not None, "with one compiler, Java's default is 48 MiB"
    assert int(room[1]) > 2 * FILLED_MIB
