"""Spark's master and settings on the command line."""

from __future__ import annotations

import pytest

from oncebench.commands.shared.options import base_cell
from oncebench.commands.shared.spark import check_master, check_settings
from oncebench.errors import ExitCode, UserError
from oncebench.run.configs import spark_settings
from oncebench.scenario.cell import Cell


@pytest.mark.parametrize("master", ["local[2]", "local[*]", "local-cluster[2,1,1024]", "spark://h:7077,i:7077"])
def test_local_masters_and_standalone_clusters_pass(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("yarn", "the suite runs local masters and standalone clusters"),
        ("k8s://https://h:6443", "docs/at_work.md"),
        ("moon", "is not a Spark master"),
        ("local[0]", "is not a Spark master"),
        ("local[99999999999]", "is not a Spark master"),
        ("local-cluster[0,1,1024]", "is not a Spark master"),
        ("spark://h", "has no host and port"),
        ("local[2,4]", "tries failed tasks again"),
    ],
)
def test_other_masters_are_refused_in_a_sentence(master: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        check_master(master)
    assert refused.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spark.task.maxFailures=4", "rest on spark.task.maxFailures .* Remove it from --spark-conf"),
        ("spark.sql.shuffle.partitions=8", "rest on spark.sql.shuffle.partitions"),
        ("spark.speculation=true", "rest on spark.speculation"),
        ("spark.authenticate.secret=hush", "every user of this machine can read"),
        ("spark.executorEnv.DSN=postgresql://u:hush@h/d", "every user of this machine can read"),
        ("spark.executor.memory", "is not of the form NAME=VALUE"),
        ("executor.memory=1g", "is not of the form NAME=VALUE"),
    ],
)
def test_settings_that_undo_a_guarantee_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        check_settings([text])
    assert refused.value.exit_code == ExitCode.USAGE
    assert "hush" not in str(refused.value)


def test_settings_reach_the_pipeline_and_the_command_that_repeats_it() -> None:
    texts = ("spark.executor.memory=2g", "spark.executor.extraJavaOptions=-Da=b -Dc=d")
    cell = base_cell(rate="500", duration=4, sessions=None, shape="constant", spark_conf=texts)
    assert spark_settings(cell) == {
        "spark.executor.memory": "2g", "spark.executor.extraJavaOptions": "-Da=b -Dc=d"
    }  # fmt: skip
    again = Cell("kafka", "exactly-once", "two-phase", spark_conf=texts).reproduce()
    assert "--spark-conf spark.executor.memory=2g --spark-conf 'spark.executor.extraJavaOptions=-Da=b -Dc=d'" in again
    assert cell.as_json()["spark_conf"] == list(texts)
