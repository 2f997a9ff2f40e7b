"""Distinguishes a process of this machine from others with the same id.

Promise: the name of a process does not depend on the clock, and is the same in all containers of the machine.
Processes with the same id have different names, unless they start within 10 ms in two containers. What can go wrong: a
machine without `/proc`; then there is no name.
"""

from __future__ import annotations

from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START = 19  # field 22 of proc(5), counted after the program's name; in clock ticks since the boot


def process_name(pid: int) -> str | None:
    """Returns the machine's boot id and a process's start; None without process or `/proc`."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]  # the name may contain anything
        return f"{_BOOT.read_text().strip()}:{int(after_name.split()[_START])}"
    except OSError:
        return None
