"""A black box in the suite: its output, which the user's set-up empties, and its reader."""

from __future__ import annotations

import json
from typing import Any

from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.black_box.reader import BlackBoxReader, Functions, failure
from oncebench.sinks.black_box.sink import KINDS
from oncebench.sinks.black_box.target import FOLDER
from oncebench.sinks.reader import NotAnsweredError
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    """Empties the output, and checks that it is empty.

    Raises:
        UserMistake: a function cannot be used, or the output has rows already.
        TooSlow: the set-up gave no answer in time.
    """
    target = {
        **json.loads(place.black_box),
        "run": place.name,
        "folder": str(place.folder),
        "kafka": place.kafka.bootstrap_servers,
        "columns": place.schema.names,
        "key": place.key,
    }
    if place.start_timeout_s is not None:
        target["limit_s"] = place.start_timeout_s
    target["output"] = target["write"] or target["format"]
    functions = Functions(target)
    try:
        _empty(functions, target)
    finally:
        functions.close()
    return target


def _empty(functions: Functions, target: dict[str, Any]) -> None:
    try:
        functions.call("setup")
    except NotAnsweredError as error:
        name = target["setup"] or "the process of your functions"
        remedy = "Correct the function" if target["setup"] else "Import their modules in a Python shell"
        raise failure(f"{name} failed before the run", error, remedy) from None
    # The process of the set-up sees its own transaction even without a commit. The run uses other processes.
    functions.close()
    try:
        found = functions.call("read")
    except NotAnsweredError:  # no table yet: the first batch makes it
        return
    if found:
        remedy = f"Correct {target['setup']}" if target["setup"] else "Give --setup module:function"
        raise UserMistake(
            f"{target['read']} returned {len(found)} rows before the run wrote any. {remedy}: this function must empty "
            "the sink, and delete what the sink remembers of earlier batches. Or write below the folder in the "
            f"environment variable {FOLDER}, which is new in each run."
        )


SUITE_SINKS = (SuiteSink(kind=KINDS[0], traits=Traits(ordered=False), provide=_provide, read=BlackBoxReader),)
