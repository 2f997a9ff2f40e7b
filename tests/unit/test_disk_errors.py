"""A disk failure reaches the user as an error that names the place and what to do."""

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from oncebench.disk_errors import disk_errors, explain_full_disk
from oncebench.errors import ExitCode, MissingEnvironment, UserError


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "denied"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.ELOOP, "circle"),
        (errno.EIO, "reports an error"),
    ],
)
def test_a_disk_failure_names_its_cause_and_the_remedy(number: int, cause: str, tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match=f"{tmp_path}.*{cause}.*--work-dir") as caught, disk_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match="disk is full"), disk_errors(tmp_path):
        Path("/dev/full").write_bytes(b"x")


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError), disk_errors(tmp_path):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def test_a_failure_on_a_full_disk_names_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(4096))
    with pytest.raises(MissingEnvironment, match="is full"), explain_full_disk(tmp_path):
        raise UserError("nothing came")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**9))
    with pytest.raises(UserError, match="nothing came") as caught, explain_full_disk(tmp_path):
        raise UserError("nothing came")
    assert "is full" not in str(caught.value)
