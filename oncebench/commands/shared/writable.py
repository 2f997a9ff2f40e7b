"""Checks paths of results before a run that may take minutes, and writes files whole.

Promise: a check leaves no file and no folder behind. A file that could not be written to its end does not replace an
earlier one.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from oncebench.disk_errors import disk_errors
from oncebench.errors import ExitCode, UserError
from oncebench.report.results import LOCAL, PUBLISHED, Results
from oncebench.report.tables import batch_series


def refuse_unwritable(option: str, path: Path | None, other: str = "") -> None:
    """Checks that a file can be written; None is no file.

    Args:
        option: the option that names the file.
        other: ends the message with another remedy, such as ", or leave it out".

    Raises:
        UserError: the file cannot be written (exit code 2).
    """
    if path is None:
        return
    trouble = None
    if path.is_dir():
        trouble = "it is a folder. Give a file in it"
    elif not path.parent.is_dir():
        trouble = f"there is no folder {path.parent}. Create it"
    elif (error := _refusal(path.resolve())) is not None:
        trouble = f"it cannot be written ({error.strerror}). Give another file"
    if trouble:
        raise UserError(f"{option} {path}: {trouble}{other}", exit_code=ExitCode.USAGE)


def new_results(name: str, publish: bool = False) -> Results:
    """Returns the results of a new series, after a check that they can be written.

    Args:
        publish: whether the repository publishes them.

    Raises:
        UserError: they cannot be written (exit code 2).
    """
    folder = PUBLISHED if publish else LOCAL
    refuse_unwritable_results(folder)
    return Results(folder, name)


def refuse_unwritable_results(
    folder: Path,
    option: str = "the results in",
    remedy: str = "Correct this, or run the command in another folder",
) -> None:
    """Checks that reports can be written to a folder, which need not exist yet.

    `oncebench.report.results.Results` writes them.

    Args:
        option: the option that names the folder.

    Raises:
        UserError: the folder or one of its folders cannot be made or written (exit code 2).
    """
    for below in (folder / "runs", folder / "tables", folder / batch_series.FOLDER):
        there = next(each for each in (below, *below.parents) if each.exists())
        try:
            Path(tempfile.mkdtemp(prefix=".oncebench-", dir=there)).rmdir()
        except OSError as error:
            reason = "it is a file" if there.is_file() else str(error.strerror)
            raise UserError(
                f"{option} {folder}: {there} cannot be written ({reason}). {remedy}", exit_code=ExitCode.USAGE
            ) from None


def remove_older(path: Path | None) -> None:
    """Removes the file of an earlier run, so that nobody takes it for the file of this run.

    What is no regular file, such as a pipe, stays. A file in a folder that cannot be changed is emptied.
    """
    if path is None or not path.is_file():
        return
    try:
        path.resolve().unlink()
    except OSError:
        path.write_bytes(b"")


def write_whole(path: Path, text: str, remedy: str) -> None:
    """Writes a file in one step. What cannot be replaced, such as a pipe, is written directly.

    Args:
        remedy: what the user can do if the disk refuses the file, see `disk_errors`.

    Raises:
        MissingEnvironment: the file cannot be written.
    """
    target = path.resolve()
    with disk_errors(path, remedy):
        if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
            path.write_text(text, "utf-8")
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            temporary.write_text(text, "utf-8")
            temporary.replace(target)
        except OSError as error:
            error.filename = str(path)
            temporary.unlink(missing_ok=True)
            raise


def _refusal(path: Path) -> OSError | None:
    """The error of a first try to write the file; None: it can be written.

    Permissions do not show everything: root may write to /proc, where no file can be created.
    """
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():
            path.touch()
            path.unlink()
        elif not os.access(path, os.W_OK):  # a pipe is not tried: it would wait for its reader
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        return error
    return None
