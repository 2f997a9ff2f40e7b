"""A request: which sink a certificate is about, and the options that decide its answer.

Promise: `command` returns the command that makes the same certificate again.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncebench.certify.scenarios import Scenario


@dataclass(frozen=True)
class Request:
    """What a user asks for.

    Attributes:
        given: the user's functions, see `oncebench.sinks.black_box.target`.
        seed: of the load and of the random kills.
        require: the guarantee that decides the exit code; None: none does.
        beside: `module:function` with which the price compares the sink; empty: no price.
    """

    given: Mapping[str, Any]
    seed: int = 1
    require: str | None = None
    beside: str = ""

    def command(self, scenario: Scenario | None = None) -> str:
        """Returns the command that certifies the sink, or that runs one scenario alone."""
        given = self.given
        words = ["oncebench", "certify", *([given["write"]] if given["write"] else ["--format", given["format"]])]
        words += [word for name, value in given["options"].items() for word in ("--option", f"{name}={value}")]
        words += ["--reader", given["read"]]
        words += ["--setup", given["setup"]] if given["setup"] else []
        words += [word for name, value in given["spark"].items() for word in ("--spark", f"{name}={value}")]
        words += ["--require", self.require] if self.require else []
        words += ["--beside", self.beside] if self.beside and scenario is None else []
        words += ["--seed", str(self.seed)] if self.seed != 1 else []
        return shlex.join(words + ([] if scenario is None else ["--only", scenario.name]))
