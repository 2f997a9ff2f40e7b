"""`python -m loadgen CONFIG.json`: runs one load as a process of its own.

Exit codes:

- 0: the plan is complete, or SIGTERM or SIGINT stopped the load;
- 1: the load could not start, or it ended before its plan;
- 2: the config is wrong.

The first signal stops sending and waits for Kafka's answers; a second signal stops the waiting. `oncebench` waits for
some time before it kills the process. It sends the second signal after half of this time. The last line of the status
file is the summary, unless the load could not start.
"""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Self

from loadgen.config import read_config
from loadgen.errors import ConfigError, LoadError
from loadgen.producer import run_load
from loadgen.status import StatusFile

USAGE = "usage: python -m loadgen CONFIG.json"


class _Signals:
    """Counts SIGTERM and SIGINT while its `with` block runs."""

    def __init__(self) -> None:
        self.seen = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._count) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.seen += 1


def main(arguments: list[str]) -> int:
    """Runs the load and returns the exit code."""
    if len(arguments) != 1:
        return _fail(USAGE, 2)
    try:
        config = read_config(Path(arguments[0]))
        with ExitStack() as stack:
            signals = stack.enter_context(_Signals())
            status_file = stack.enter_context(StatusFile(config.status_path)) if config.status_path else None
            summary = run_load(
                config,
                stop=lambda: signals.seen > 0,
                on_status=status_file.status if status_file else None,
                abandon=lambda: signals.seen > 1,
            )
            if status_file:
                status_file.done(summary)
    except ConfigError as error:
        return _fail(f"loadgen: {error}", 2)
    except LoadError as error:
        return _fail(f"loadgen: {error}", 1)
    except OSError as error:
        return _fail(f"loadgen: {error.filename or 'the load'}: {error.strerror}", 1)
    return _fail(f"loadgen: {summary.error}", 1) if summary.error else 0


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
