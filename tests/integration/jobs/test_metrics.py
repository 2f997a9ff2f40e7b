"""A real job is scraped over HTTP: while it runs, after a kill, and after a refusal."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oncebench.lab.lab import Lab
from oncebench.processes.ports import free_ports
from oncebench.servers.pages import page
from tests import ROOT
from tests.example_jobs import Example
from tests.integration.jobs.test_killed import ORDERS
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def lines_of_the_page() -> str:
    """The lines that docs/your_own_job.md adds to a job."""
    page = (ROOT / "docs" / "your_own_job.md").read_text()
    found = re.search(r"```python\n(from prometheus_client .*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and its labels other than sink and sink_id.

    Empty before the server is up.
    """
    try:
        text = page(f"http://127.0.0.1:{port}/metrics", 10).decode()
    except OSError:
        return {}
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name.startswith("oncebench_") else ():
            labels = dict(sample.labels)
            assert labels.pop("sink") == "kafka" and labels.pop("sink_id").startswith("checked")
            found[sample.name, *labels.values()] = sample.value
    return found


@pytest.mark.slow
def test_a_scrape_of_a_job_shows_what_it_delivered(lab: Lab, tmp_path: Path) -> None:
    job, port = Example(lab, tmp_path, "orders_to_kafka.py"), free_ports(1)[0]
    text = (tmp_path / "job.py").read_text()
    served, sink = lines_of_the_page().replace("9108", str(port)), "\nsink = KafkaSink"
    assert str(port) in served and text.count(sink) == 1
    (tmp_path / "job.py").write_text(text.replace(sink, f"\n{served}{sink}"))
    for kill in (1, 2):
        job.send({"order_id": f"o-{n}", "cents": n} for n in range(ORDERS * (kill - 1), ORDERS * kill))
        with job.start() as running:
            wait_for("the orders", lambda: scrape(port).get(("oncebench_rows_total",), 0) == ORDERS, [running])
            wait_for("its end", lambda: scrape(port)["oncebench_open_batch_age_seconds",] == 0, [running])
            found = scrape(port)
            running.kill_session()
        assert found["oncebench_batches_total", "written"] >= 1
        assert found["oncebench_batches_total", "drained"] in range(kill)  # a kill may come before Spark's commit log
        assert 0 <= time.time() - found["oncebench_newest_commit_timestamp_seconds",] < 60
        assert found["oncebench_open_transactions",] == 0
        assert found["oncebench_oldest_open_transaction_age_seconds",] == 0
        failures = [value for name, value in found.items() if name[0] == "oncebench_failures_total"]
        assert failures and not any(failures)
