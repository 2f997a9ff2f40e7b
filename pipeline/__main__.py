"""Runs the pipeline until SIGTERM: `python -m pipeline CONFIG.json [--accept-gap TEXT]`.

Exit codes:

- 0: stopped as asked.
- 1: failed; a restart replays the open batch.
- 2: refused to start, or failed in a way that a restart does not mend.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from oncebench.delivery.durable import refuse_wrong_place
from oncebench.delivery.errors import (
    NO_RESTART_HELPS,
    REFUSED,
    RESTART_HELPS,
    STOPPED,
    PipelineError,
    RefusedStart,
    StoppedGently,
)
from pipeline.config import read_config
from pipeline.spark.signals import Stopping, end_jvms
from pipeline.spark.sockets import short_sockets
from pipeline.spark.temporary import own_temporary


def main(arguments: list[str]) -> int:
    """Runs the pipeline that the configuration file describes."""
    opened = ExitStack()
    stopping = Stopping(opened.close)
    try:
        stopping.obey()  # first, because a signal may come at once
        return _run(arguments, stopping, opened)
    except StoppedGently:
        return 0
    finally:
        stopping.start_is_over()
        end_jvms()
        opened.close()


def _run(arguments: list[str], stopping: Stopping, opened: ExitStack) -> int:
    faulthandler.enable()  # after a crash in a C library the log has the stack
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    path, *options = arguments or [""]
    if not path or (options and (len(options) != 2 or options[0] != "--accept-gap")):
        print("usage: python -m pipeline CONFIG.json [--accept-gap TEXT]", file=sys.stderr)
        return NO_RESTART_HELPS
    try:
        config = read_config(Path(path))
        if options:
            config = replace(config, accept_gap=options[1])
        from pipeline.job import Job  # noqa: PLC0415  Spark is imported only once the configuration is right

        with refuse_wrong_place("record", config.record):
            config.record.mkdir(parents=True, exist_ok=True)
            config = opened.enter_context(own_temporary(config))
            job = Job(opened.enter_context(short_sockets(config)), stopping)
        job.run()
    except Exception as error:
        if stopping.cut_a_start:
            return 0
        return _ended_by(error)
    return 0


def _ended_by(error: Exception) -> int:
    """Prints why the pipeline has ended; returns its exit code."""
    if isinstance(error, StoppedGently):
        return 0
    if isinstance(error, RefusedStart):
        print(f"{REFUSED}{error}", file=sys.stderr)
        return NO_RESTART_HELPS
    if isinstance(error, PipelineError):
        print(f"{STOPPED}{type(error).__name__}: {error}", file=sys.stderr)
        return RESTART_HELPS if error.restart_helps else NO_RESTART_HELPS
    logging.getLogger("pipeline").error("the query died", exc_info=error)
    print(f"{STOPPED}{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
    return RESTART_HELPS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
