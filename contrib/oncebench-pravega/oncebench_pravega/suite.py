"""The Pravega sink in the suite: a stream per run, and a committed reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.reader import Snapshots
from oncebench.sinks.suite import Place, SuiteSink, Traits
from oncebench_pravega.controller import Controller, ControllerError, Stream
from oncebench_pravega.reader import read
from oncebench_pravega.sink import KINDS, address

SCOPE = "oncebench"


def _provide(place: Place) -> dict[str, Any]:
    stream = Stream(SCOPE, place.name)
    controller = Controller(address())
    try:
        made = controller.make_stream(stream, place.partitions)
    except ControllerError as error:
        raise RefusedStart(f"no stream {stream} could be made at {controller.address}: {error}") from error
    finally:
        controller.close()
    if not made:
        raise RefusedStart(
            f"{controller.address} makes no stream {stream}: it exists already, or the name is not allowed"
        )
    return {"output": str(stream), "key": place.key}


def _read(target: Mapping[str, Any]) -> Snapshots:
    return read(address(), Stream.named(target["output"]), target["key"])


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0],
        traits=Traits(ordered=True, self_cleaning=True, services=("pravega",)),
        provide=_provide,
        read=_read,
    ),
)
