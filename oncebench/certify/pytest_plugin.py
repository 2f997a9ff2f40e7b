"""The fixture `certify` for the tests of a user's sink; pytest loads this file by the entry point `pytest11`.

Promise: a start of pytest that uses no `certify` imports nothing else of the suite. Every start of pytest in an
environment with oncebench loads this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncebench.certify.in_test import Certify


@pytest.fixture
def certify(tmp_path: Path) -> Certify:
    """Fails the test if a foreachBatch function breaks a guarantee: certify(write_batch, reader=read_rows)."""
    from oncebench.certify.in_test import Certify  # noqa: PLC0415  only tests that use the fixture need it

    return Certify(tmp_path)
