"""Stdout and stderr that outlive whoever reads them.

Promise: a command ends as usual after its reader has gone. Ctrl-C in `oncebench run ... 2>&1 | tee log` ends `tee` too,
and the run still stops gently and writes its report. The same holds after a terminal has hung up.

Failure modes: other errors of a write pass, such as a full disk.
"""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Outliving(io.FileIO):
    """A file of this process that outlives its reader.

    A write to a pipe without a reader, or to a terminal that hung up, has no effect.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        # On a file, EIO is a broken disk.
        self._reader_gone = (errno.EPIPE, errno.EIO) if stream.isatty() else (errno.EPIPE,)

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self._reader_gone:
                raise
            return memoryview(data).nbytes


def outlive_readers() -> None:
    """Replaces stdout and stderr of this process with files that outlive their readers.

    Call it before anything keeps one of them, such as logging.
    """
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)


def _outliving(stream: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # closed by the caller (None), or a caller's own object
        return stream  # type: ignore[return-value]  # so does Python itself
    raw = io.BufferedWriter(_Outliving(stream))
    line = stream.line_buffering
    return io.TextIOWrapper(raw, encoding=stream.encoding, errors=stream.errors, line_buffering=line)
