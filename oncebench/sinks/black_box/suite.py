"""A black box in the suite: an output that the user's `setup` empties, and the user's reader."""

from __future__ import annotations

import json
from typing import Any

from oncebench.sinks.black_box.reader import BlackBoxReader, Functions
from oncebench.sinks.black_box.sink import KINDS
from oncebench.sinks.black_box.target import FOLDER, UserMistake
from oncebench.sinks.reader import NotAnsweredError
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    """Empties the output, and checks that it is empty.

    Raises:
        UserMistake: a function cannot be used, or the output has rows already.
    """
    target = {
        **json.loads(place.black_box),
        "run": place.name,
        "folder": str(place.folder),
        "kafka": place.kafka.bootstrap_servers,
        "columns": place.schema.names,
        "key": place.key,
    }
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
        raise UserMistake(f"{target['setup']} failed: {error}. Correct the function that empties the output.") from None
    try:
        found = functions.call("read")
    except NotAnsweredError:  # no table yet: the first batch makes it
        return
    if found:
        how = f"{target['setup']} must empty the output" if target["setup"] else "Give --setup module:function"
        raise UserMistake(
            f"{target['read']} shows {len(found)} rows before the run has written any. {how}, so that each run begins "
            f"with an empty output and without the sink's memory of earlier batches. Or write below {FOLDER}, an "
            "environment variable with a new folder for each run."
        )


SUITE_SINKS = (SuiteSink(kind=KINDS[0], traits=Traits(ordered=False), provide=_provide, read=BlackBoxReader),)
