"""Runs the pipeline until SIGTERM or SIGINT: `python -m pipeline CONFIG.json [--accept-gap TEXT]`.

Exit codes: 0 stopped as asked; 1 failed (a restart replays the open batch); 2 refused to start.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType

from oncebench.delivery.durable import refuse_wrong_place
from oncebench.delivery.errors import PipelineError, RefusedStart
from pipeline.config import read_config
from pipeline.spark.sockets import short_sockets
from pipeline.spark.temporary import own_temporary


def main(arguments: list[str]) -> int:
    """Runs the pipeline that the configuration file describes."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):  # first, because a signal may come at once
        signal.signal(number, stop)
    faulthandler.enable()  # after a crash in a C library the log has the stack
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    path, *options = arguments or [""]
    if not path or (options and (len(options) != 2 or options[0] != "--accept-gap")):
        print("usage: python -m pipeline CONFIG.json [--accept-gap TEXT]", file=sys.stderr)
        return 2
    try:
        config = read_config(Path(path))
        if options:
            config = replace(config, accept_gap=options[1])
        from pipeline.job import Job  # noqa: PLC0415  Spark is imported only once the configuration is right

        with ExitStack() as opened:
            with refuse_wrong_place("record", config.record):
                config.record.mkdir(parents=True, exist_ok=True)
                config = opened.enter_context(own_temporary(config))
                job = Job(opened.enter_context(short_sockets(config)), stopping)
            job.run()
    except RefusedStart as error:
        print(f"refused to start: {error}", file=sys.stderr)
        return 2
    except PipelineError as error:
        print(f"stopped: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        logging.getLogger("pipeline").exception("the query died")
        print(f"stopped: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
