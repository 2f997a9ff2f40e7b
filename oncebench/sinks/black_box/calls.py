"""Refuses functions that a plain call does not finish.

A run calls each function once, and takes what the function returns. `foreachBatch` calls the function and ignores the
result. So a call of an `async def` or of a generator function runs nothing: it returns a coroutine or a generator,
which nobody runs.

Failures: a function of another kind is refused (`UserMistake`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from oncebench.sinks.black_box.names import UserMistake

# What a run passes to the function of each role, and how the text of a refusal shows the call.
_ARGUMENTS = {"write": (2, "(df, batch_id)"), "read": (0, "()"), "setup": (0, "()")}


def refuse_uncallable(function: Callable[..., Any], spec: str, role: str) -> None:
    """Refuses a function that a run cannot call, or whose call would run nothing.

    Args:
        spec: the name of the function in texts.
        role: write, read or setup.

    Raises:
        UserMistake: the parameters are others, or the function is async, or it is a generator and no reader.
    """
    called = [function, vars(type(function)).get("__call__")]  # an object may have the function as its method
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called):
        raise _unfinished(spec, "is an async function")
    if role != "read" and any(map(inspect.isgeneratorfunction, called)):
        raise _unfinished(spec, "is a generator function, because it has a `yield`")
    count, shown = _ARGUMENTS[role]
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise UserMistake(
            f"a run calls {spec}{shown}, which fails: {error}. Change the function's parameters."
        ) from None
    except ValueError:  # written in C, without a signature
        return


def refuse_unfinished(returned: object, spec: str) -> None:
    """Refuses what a call returned, if the call has not run the function to its end.

    A decorator may hide the kind of a function from `refuse_uncallable`.

    Raises:
        UserMistake: the function returned a coroutine or a generator.
    """
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise _unfinished(spec, f"returned a {type(returned).__name__}")


def _unfinished(spec: str, what: str) -> UserMistake:
    return UserMistake(
        f"{spec} {what}, so a call of it runs nothing. Give a function of `def` that does the work before it returns; "
        "for async code it can call asyncio.run()."
    )
