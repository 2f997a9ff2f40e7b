"""Errors of an object store, by the texts that Arrow 26 raised before a real server."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from oncebench_iceberg.catalogs.errors import cause_of, may_pass
from oncebench_iceberg.rest_server.warehouse import VARIABLE, warehouse_of

from oncebench.errors import MissingEnvironment

AWAY = (
    "When reading information for key 'a/x.txt' in bucket 'bench': AWS Error NETWORK_CONNECTION during HeadObject "
    "operation: curlCode: 52, Server returned nothing (no headers, no data); Details: Empty reply from server"
)
LOGIN = (
    "When reading information for key 'a' in bucket 'bench': AWS Error ACCESS_DENIED during HeadObject operation: No "
    "response body."
)
BAD = (
    "When completing multiple part upload for key 'a' in bucket 'bench': AWS Error UNKNOWN (HTTP status 400) during "
    "CompleteMultipartUpload operation: Unable to parse ExceptionName: {} Message: no."
)


@pytest.mark.parametrize(
    ("text", "reason", "permanent", "passes"),
    [
        (AWAY, "did not answer", False, True),
        (LOGIN, "does not accept the keys", True, False),
        (BAD.format("ExpiredToken"), "have expired", False, True),
        (BAD.format("BadRequest"), "no table has this code", False, False),
        (BAD.replace("400", "503").format("Oops"), "store failed", False, True),
        ("no error of a store", "no table has this code", False, False),
    ],
)
def test_an_error_of_a_store_has_its_cause(text: str, reason: str, permanent: bool, passes: bool) -> None:
    error = OSError(text)
    assert reason in cause_of(error).reason
    assert (cause_of(error).permanent, may_pass(error)) == (permanent, passes)


def test_an_error_of_a_disk_keeps_its_cause() -> None:
    error = OSError(errno.ENOSPC, AWAY)
    assert "disk is full" in cause_of(error).reason


@pytest.mark.parametrize("text", ["/data/warehouse", "s3://bucket", "s3://key:secret@bucket/a", "gs://bucket/a"])
def test_a_warehouse_that_is_no_folder_of_a_store_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match="s3://BUCKET/FOLDER") as refused:
        warehouse_of({VARIABLE: text}, tmp_path)
    assert "secret" not in str(refused.value)
