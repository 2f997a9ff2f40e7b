"""A price counts everything that a guarantee needs, and nothing that only observes."""

from __future__ import annotations

from oncebench.observe.resources import Use
from oncebench.report.measures.price import needed, per_million, pipeline_cpu_s, price, watching_share

SEEN = {
    "spark_jvm": Use(cpu_s=2.0, written_bytes=3_000),
    "broker": Use(cpu_s=1.0, read_bytes=500),
    "observer": Use(cpu_s=9.0, written_bytes=9_000),
    "generator": Use(cpu_s=9.0),
}


def test_generator_and_observer_are_not_in_the_price() -> None:
    paid = price(SEEN, 1000, needed(()))
    assert paid is not None
    assert (paid["cpu_s"], paid["written_bytes"], paid["read_bytes"]) == (3000.0, 3e6, 500_000.0)
    assert paid["by_component"].keys() == {"broker", "spark_jvm"}
    assert paid["by_component"]["broker"] == {"cpu_s": 1000.0, "written_bytes": 0.0, "read_bytes": 500_000.0}


def test_a_missing_server_means_no_price() -> None:
    assert price(SEEN, 1000, needed(["postgres"])) is None
    with_it = price({**SEEN, "postgres": Use(cpu_s=1.0)}, 1000, needed(["postgres"]))
    assert with_it is not None
    assert with_it["cpu_s"] == 4000.0
    assert price({"spark_jvm": Use(cpu_s=2.0)}, 1000, needed(())) is None


def test_without_events_there_is_no_price() -> None:
    assert price(SEEN, 0, needed(())) is None
    assert price(SEEN, None, needed(())) is None
    assert per_million({"bytes": 5, "files": 1}, 0) == {"bytes": None, "files": None}
    assert per_million(None, 10) == {"bytes": None, "files": None}


def test_the_checkpoint_is_counted_per_million_events() -> None:
    assert per_million({"bytes": 5_000, "files": 2}, 10_000) == {"bytes": 500_000.0, "files": 200.0}


def test_observation_is_a_share_of_the_pipeline() -> None:
    uses = {
        "spark_jvm": Use(cpu_s=5.0),
        "python_workers": Use(cpu_s=5.0),
        "observer": Use(cpu_s=0.4),
        "suite": Use(cpu_s=0.2),
        "broker": Use(9.0),
    }
    assert watching_share(uses, needed(())) == 0.06
    assert watching_share({"spark_jvm": Use(cpu_s=5.0), "observer": Use(0.4)}, needed(())) is None


def test_the_pipelines_time_needs_no_server() -> None:
    own_kafka = {name: use for name, use in SEEN.items() if name != "broker"}
    for uses in (SEEN, own_kafka, {**own_kafka, "postgres": Use(cpu_s=7.0)}):
        assert pipeline_cpu_s(uses, 1000, needed(["postgres"])) == 2000.0
    assert pipeline_cpu_s({}, 1000, needed(())) is None
    assert pipeline_cpu_s(SEEN, 0, needed(())) is None
