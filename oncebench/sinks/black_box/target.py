"""Describes a user's functions for the processes of a run, and loads them.

A target is a JSON object. `oncebench certify` makes it. `oncebench.sinks.black_box.suite` adds the fields from `run` on
for each run.

| field | content |
|---|---|
| write | `module:function`, which takes `(df, batch_id)`; empty for a streaming sink of Spark |
| format, options | the name and the options of a streaming sink of Spark; empty for a function |
| read | `module:function`, which returns or yields the rows that a reader of the sink sees |
| setup | `module:function`, which empties the sink before each run; empty if there is none |
| cwd | the folder in which the functions run |
| spark | Spark settings of the run |
| run, folder | a new name and a new empty folder for each run |
| kafka | the address of the run's Kafka |
| columns, key | the names of the rows' columns, and the column that is the key of a record |
| output | the name of the sink in texts |
| limit_s | the seconds that one call of a function may take; without it, the limit of the reader |

Promise: in every process of a run, the functions run in the user's folder. Their modules are imported from there, or
from an installed package if the folder has no such module. The environment holds RUN, FOLDER and KAFKA.

Failures: a function cannot be loaded (`UserMistake`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from oncebench.sinks.black_box.names import UserMistake, module_and_name

# Environment variables for the user's functions: a name and a folder that no other run has, and the address of the
# run's Kafka.
RUN, FOLDER, KAFKA = "ONCEBENCH_RUN", "ONCEBENCH_OUTPUT", "ONCEBENCH_KAFKA"


def enter(target: Mapping[str, Any]) -> None:
    """Makes this process and its children run in the user's folder, with the run's environment."""
    cwd = str(target["cwd"])
    os.chdir(cwd)
    # First, as in Spark's workers, so that every process imports the same file.
    sys.path[:] = [cwd, *(each for each in sys.path if each != cwd)]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([cwd, *(each for each in paths if each not in ("", cwd))])
    for variable, field in ((RUN, "run"), (FOLDER, "folder"), (KAFKA, "kafka")):
        os.environ[variable] = str(target[field])


def load(spec: str, cwd: str) -> Callable[..., Any]:
    """Returns the function that `module:function` names.

    Raises:
        UserMistake: the module cannot be imported, or has no such function.
    """
    module, name = module_and_name(spec)
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.split(".", maxsplit=1)[0] or error.name == module:
            raise UserMistake(
                f"there is no module {module!r} in {cwd} or among the installed packages. Run the command in the "
                "folder that holds the module, or install its package."
            ) from error
        raise UserMistake(
            f"module {module!r} imports {error.name!r}, which is not installed. Install it in the Python that runs "
            "this command."
        ) from error
    except SystemExit as error:
        raise UserMistake(
            f"the import of {module!r} raised SystemExit({error.code!r}). Put the code that ends the program below "
            "`if __name__ == '__main__':`."
        ) from None
    except Exception as error:
        raise UserMistake(f"the import of {module!r} raised {_named(error)}. Correct the module.") from error
    function: Any = found
    for part in name.split("."):
        function = getattr(function, part, None)
    if function is None:
        there = ", ".join(sorted(each for each, value in vars(found).items() if _own_function(value, module)))
        raise UserMistake(f"module {module!r} has no {name!r}. Its functions are: {there or 'none'}. Correct the name.")
    if not callable(function):
        raise UserMistake(f"{spec} is of type {type(function).__name__}, not a function. Give the name of a function.")
    made: Callable[..., Any] = function
    return made


def _own_function(value: object, module: str) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module


def _named(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
