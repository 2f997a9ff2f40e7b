"""The fixture `certify` of pytest, for tests of a user's sink.

pytest loads this file by the entry point `pytest11`, at every start in an environment that has oncebench.

Promise: unless a test uses the fixture, pytest does not import the code that runs and audits jobs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncebench.certify.in_test import Certify


@pytest.fixture
def certify(tmp_path: Path) -> Certify:
    """Fails the test if a foreachBatch function breaks a guarantee.

    Call it as `certify(write_batch, reader=read_rows)`.
    """
    from oncebench.certify.in_test import Certify  # noqa: PLC0415  only tests that use the fixture need it

    return Certify(tmp_path)
