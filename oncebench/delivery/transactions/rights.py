"""Whether the job can read what another user writes into its journal."""

from __future__ import annotations

import os
import pwd
import stat
import uuid
from pathlib import Path

from oncebench.delivery.durable import refuse_wrong_place
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import Place


def refuse_unreadable(journal: Place) -> None:
    """Refuses to write entries that the owner of a journal's folder could not read.

    It makes a file and looks at its owner, because a network file system may give all files the same owner.

    Raises:
        RefusedStart: this user must not write there, or the owner could not read it.
    """
    if not isinstance(journal, Path):
        return  # the files of an object store have no owner
    probe = journal / f".probe.json.{uuid.uuid4().hex}"  # a start removes what a kill leaves here
    with refuse_wrong_place("checkpoint", journal):
        try:
            probe.touch(exist_ok=False)
            made, owner = probe.stat(), journal.stat().st_uid
        finally:
            probe.unlink(missing_ok=True)
    if not readable(made, owner):
        raise RefusedStart(
            f"{journal} belongs to user id {owner}, and the job with this id could not read what this command writes "
            "there. Nothing was changed. Run the command as that user, or with umask 022."
        )


def readable(file: os.stat_result, user: int) -> bool:
    """Whether a user may read a file: as its owner, in its group, or as anybody."""
    if file.st_uid == user or file.st_mode & stat.S_IROTH:
        return True
    try:
        entry = pwd.getpwuid(user)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except (KeyError, OSError):  # a user that this machine does not know, as in a container
        return False
    return bool(file.st_mode & stat.S_IRGRP) and file.st_gid in groups
