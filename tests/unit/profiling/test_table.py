"""The table of a profile: stacks become parts, and parts add up to what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.profiling import parts
from oncebench.profiling.flame_graphs import below_part
from oncebench.profiling.parts import part_of_thread, part_of_worker
from oncebench.profiling.stacks import Stack, collapse, parse
from oncebench.profiling.table import batch_line, cpu_by_part, table
from oncebench.profiling.times import batch_times
from oncebench.report.measures.checkpoint import Progress

JVM = """\
[stream execution thread for [id = 1, runId = 2] tid=10];Query.run;Plan.make 30
[Executor task launch worker for task 0.0 in stage 3.0 (TID 5) tid=11];Task.run 20
[Executor task idle worker#2 tid=12];Task.run 20
[stateConnectionListenerThread tid=13];Server.run 10
[C2 CompilerThre tid=14];compile 8
[GC Thread#0 tid=15];collect 2
[dag-scheduler-event-loop tid=16];loop 5
[rocksdb:high tid=17];flush 5
"""
DAEMON = 'process 7:"python -m pipeline.spark.workers pyspark.worker"'
WORKERS = f"""\
{DAEMON};main (pyspark/worker.py:3561);pack (pipeline/packing.py:39);_packed (pipeline/packing.py:49) 4
{DAEMON};process 8:"python -m pipeline.spark.workers";_batches (pipeline/spark/stateful_worker.py:124) 3
{DAEMON};main (pyspark/worker.py:3561);Task.take (oncebench/delivery/tasks.py:49);x (pipeline/packing.py:39) 2
{DAEMON};main (pyspark/worker.py:3561);read_int (pyspark/serializers.py:572) 1
"""
CPU_S = {"spark_jvm": 10.0, "python_workers": 2.0, "python_driver": 0.5, "broker": 1.0, "generator": 0.7, "suite": 0.0}


def test_stacks_are_read_back_as_they_were_written() -> None:
    stacks = [Stack(("[a b];".rstrip(";"), "f (x.py:1)"), 3), Stack(("c",), 1)]
    assert list(parse(collapse(stacks))) == stacks


def test_equal_stacks_become_one_line_and_lines_without_a_count_are_skipped() -> None:
    assert collapse(parse("a;b 1\nno count\na;b 2\n\n")) == "a;b 3\n"


def test_every_thread_of_the_jvm_belongs_to_one_part() -> None:
    found = {part_of_thread(stack) for stack in parse(JVM)}
    assert found == set(parts.JVM_PARTS)


@pytest.mark.parametrize(
    ("line", "part"),
    list(zip(WORKERS.splitlines(), (parts.PACKING, parts.OPERATOR, parts.WRITER, parts.OTHER_WORKERS), strict=True)),
)
def test_a_workers_functions_name_its_part(line: str, part: str) -> None:
    assert [part_of_worker(stack) for stack in parse(line)] == [part]


def test_parts_add_up_to_the_measured_cpu_time() -> None:
    found = cpu_by_part(CPU_S, 10, parse(JVM), parse(WORKERS))
    assert sum(found.values()) == pytest.approx(sum(CPU_S.values()) * 1000 / 10)
    assert found[parts.PLANNING] == pytest.approx(300)  # 30 of 100 samples of 10 s, in 10 batches
    assert found[parts.TASKS] == pytest.approx(400)
    assert found[parts.PACKING] == pytest.approx(80)
    assert found[parts.DRIVER] == pytest.approx(50)


def test_a_process_without_samples_is_not_lost() -> None:
    found = cpu_by_part(CPU_S, 10, (), ())
    assert found[parts.OTHER_THREADS] == pytest.approx(1000)
    assert found[parts.OTHER_WORKERS] == pytest.approx(200)


def test_a_server_of_the_sink_has_its_own_row_and_an_idle_part_has_none() -> None:
    found = cpu_by_part({**CPU_S, "postgres": 3.0}, 10, parse(JVM), parse(WORKERS))
    assert found["postgres"] == pytest.approx(300)
    assert "oncebench itself" not in found


def test_the_table_has_the_largest_part_first_and_ends_with_the_sum() -> None:
    assert table({"b": 10.0, "a": 30.0}).splitlines()[2:] == [
        "| a | 30.0 | 75% |",
        "| b | 10.0 | 25% |",
        "| all | 40.0 | 100% |",
    ]


def test_a_flame_graph_has_parts_instead_of_threads_and_processes() -> None:
    assert collapse(below_part(parse(JVM), part_of_thread)).splitlines()[1] == "JVM: tasks;Task.run 40"
    assert "process " not in collapse(below_part(parse(WORKERS), part_of_worker))


def batch(number: int, began_us: int, **more: Any) -> dict[str, Any]:
    spent = {"triggerExecution": 100, "latestOffset": 4, "getBatch": 1, "queryPlanning": 15, "walCommit": 5,
             "addBatch": 70, "commitOffsets": 3}  # fmt: skip
    return {"kind": "batch", "batch": number, "t_us": began_us + 300_000, "began_us": began_us, "input_rows": 10,
            "duration_ms": spent, **more}  # fmt: skip


def test_times_are_those_of_batches_after_the_warm_up() -> None:
    lines = [batch(number, number * 1_000_000) for number in range(6)]
    lines[0]["duration_ms"] = {"triggerExecution": 900}  # within the warm-up
    lines += [batch(6, 6_000_000, input_rows=0)]
    lines += [{"kind": "sink", "t_us": 5_050_000, "batch": 5, "timings_ms": {"run": 60, "commit": 4, "total": 80}}]
    times = batch_times(Progress(lines, 4_000_000, None))
    assert (times.batches, times.total) == (2, 100)
    assert times.steps == {"planning": 20, "offset log": 5, "run": 70, "commit log": 3}
    assert times.sink == {"tasks": 60, "commit": 4}
    assert batch_line(times).startswith("A batch takes 100 ms (median): planning 20, offset log 5, run 70")


def test_a_run_without_a_settled_batch_has_no_times() -> None:
    times = batch_times(Progress([], 0, None))
    assert (times.batches, times.total) == (0, None)
    assert batch_line(times) == "No batch began after the warm-up."
