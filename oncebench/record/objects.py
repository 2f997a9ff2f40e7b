"""Reads a JSON file of a run folder.

Failures: it is missing, damaged, or newer than this code (`RecordError`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oncebench.record.earlier import current_cell
from oncebench.record.validation import OBJECT, RecordError, refuse_newer, require


def read_object(path: Path, kind: Any) -> dict[str, Any]:
    """Returns the object in `path`, which fits the type `kind`."""
    try:
        item = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordError(
            f"{path} is missing. Either the run ended before writing it, or the folder was copied in part"
        ) from None
    except ValueError as error:
        raise RecordError(f"{path} is no JSON ({error}); take the folder from a sound copy") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); take the folder from a sound copy") from error
    require(item, OBJECT, path)
    refuse_newer(item.get("schema", 1), path)
    if "cell" in item:
        item["cell"] = current_cell(item["cell"])
    require(item, kind, path)
    return dict(item)
