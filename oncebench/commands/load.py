"""`oncebench load`: runs the load generator alone, against any Kafka."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from oncebench.commands.shared.options import GroupedCommand, base_cell, load_options, work_dir_option
from oncebench.errors import ExitCode, UserError
from oncebench.home import HOME
from oncebench.kafka_access.access import KafkaAccess
from oncebench.processes import child as process
from oncebench.record.json_lines import Tail
from oncebench.report.results import default_work_dir
from oncebench.run.interrupt import gently, nothing_to_report
from oncebench.servers.kafka.broker import start_kafka
from oncebench.servers.kafka.external import external
from oncebench.workdir import delete_below, open_work_dir, refuse_used

POLL_S = 0.1
# One line per second, as other load tools print.
LINE_EVERY_S = 1.0
# Before the first events, when there are no rates to print.
WAIT_LINE_EVERY_S = 5.0
STOP_S = 30.0
TOPIC_PREFIX = "ob-load"
LOG = Path("logs") / "generator.log"  # in the work dir


@click.command(cls=GroupedCommand)
@load_options()
@click.option("--topic", help="Existing topic of your own Kafka; needs --bootstrap-servers [default: a new topic].")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@work_dir_option
def load(topic: str | None, kafka: KafkaAccess | None, as_json: bool, work_dir: Path | None, **options: Any) -> None:
    """Send sessions of 100 events to a Kafka topic, and record every event in a ledger.

    The load is open loop: its schedule does not depend on the broker. Without --bootstrap-servers, a broker is started
    for the load. With --bootstrap-servers and without --topic, a new topic ob-load-... with 2 partitions is created
    and left in place. Current rates go to stderr, the summary to stdout, and the ledger to the work dir.

    \b
    Example:
      oncebench load --rate 5000 --duration 60
    """
    if topic is not None and kafka is None:
        raise UserError(
            "--topic is a topic of your own Kafka. Give its address with --bootstrap-servers", exit_code=ExitCode.USAGE
        )
    cell = base_cell(**options)
    with open_work_dir(work_dir or default_work_dir("load")) as work, gently() as interrupted:
        refuse_used(work.path)
        config = {"rate": cell.rate, "sessions": cell.sessions, "shape": cell.shape, "seed": cell.seed,
                  "record_bytes": cell.record_bytes, "ledger_dir": str(work.path / "ledger"),
                  "status_path": str(work.path / "load.jsonl")}  # fmt: skip
        if kafka is not None:
            reached = external(kafka)
            there = topic or reached.fresh_topic(TOPIC_PREFIX, cell.partitions)
            done = _send({**config, **kafka.as_json(), "topic": there}, work.path, interrupted)
            if topic is None:
                click.echo(f"the load is in topic {there}, which is left in place", err=True)
        else:
            click.echo("starting Kafka", err=True)
            try:
                with start_kafka(work.path) as broker:
                    own = {**broker.access.as_json(), "topic": broker.fresh_topic(TOPIC_PREFIX, cell.partitions)}
                    done = _send({**config, **own}, work.path, interrupted)
            finally:  # also after an error: nobody can read the events any more
                delete_below(work.path, work.path / "kafka")
    click.echo(json.dumps(done, indent=1) if as_json else _summary(done, work.path))
    if interrupted.is_set():
        sys.exit(ExitCode.INTERRUPTED)
    if done["error"]:
        raise UserError(f"the load ended before its plan: {done['error']}. Its log is {work.path / LOG}")
    if done["failed"]:
        sys.exit(ExitCode.ERROR)


def _send(config: Mapping[str, Any], folder: Path, interrupted: Any) -> dict[str, Any]:
    path = folder / "generator.json"
    path.write_text(json.dumps(config, indent=1))
    log = folder / LOG
    status = Tail(folder / "load.jsonl")
    started = printed = time.monotonic()
    click.echo("starting the generator", err=True)
    with process.start("the generator", [sys.executable, "-m", "loadgen", str(path)], log, cwd=HOME) as child:
        while child.alive:
            if interrupted.is_set():
                child.stop_gently(STOP_S, again_after_s=STOP_S / 2)
                break
            newest, now = status.last(), time.monotonic()
            if now - printed >= (LINE_EVERY_S if newest else WAIT_LINE_EVERY_S):
                printed = now
                waiting = f"waiting for the generator's first events, {now - started:.0f} s"
                click.echo(_progress(newest) if newest else waiting, err=True)
            time.sleep(POLL_S)
    summary = status.last().get("summary")
    if summary is None:
        if interrupted.is_set():
            raise nothing_to_report("load began")
        words = log.read_text("utf-8", errors="replace").strip().splitlines()
        raise UserError(words[-1] if words else f"the generator ended without a message; see {log}")
    return dict(summary)


def _progress(now: Mapping[str, Any]) -> str:
    last = now.get("summary", now)
    return (
        f"{time.strftime('%H:%M:%S')}  sent {last['sent']:,}  acknowledged {last['acknowledged']:,}  "
        f"failed {last['failed']:,}  rate {now.get('rate_1s', last.get('events_per_s', 0)):,.0f}/s  "
        f"late p99 {now.get('lateness_p99_ms', 0):.1f} ms"
    )


def _summary(done: Mapping[str, Any], folder: Path) -> str:
    late = done["lateness_ms"]
    return (
        f"planned {done['planned']:,}  sent {done['sent']:,} ({done['sent_share']:.1%})  acknowledged "
        f"{done['acknowledged']:,}  failed {done['failed']:,}  unknown {done['unknown']:,}\n"
        f"{done['events_per_s']:,.0f} events/s over {done['duration_s']:.1f} s; lateness p50 {late['p50']:.2f}  "
        f"p99 {late['p99']:.2f}  max {late['max']:.2f} ms\nledger  {folder / 'ledger'}"
    )
