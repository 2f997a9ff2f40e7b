"""The language and the encoding of the programs that the suite starts.

The suite recognises a taken port and a full disk by the text of the error. A JVM reports it in the user's language.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def in_english(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns an environment in which programs report errors in English.

    It does not set LC_ALL=C: a JVM whose encoding is ASCII can't open a path with other letters.
    """
    own = {name: value for name, value in environment.items() if name not in ("LC_ALL", "LANGUAGE")}
    letters = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    return {**own, "LC_MESSAGES": "C", "LC_CTYPE": letters if "utf" in letters.lower() else "C.UTF-8"}
