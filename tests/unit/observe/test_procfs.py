"""The direct read of /proc gives the right figures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncebench.observe import procfs


@pytest.mark.skipif(sys.platform != "linux", reason="only psutil is used there")
def test_the_direct_read_agrees_with_psutil(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)  # a child that was waited for
    with (tmp_path / "written").open("wb") as file:
        file.write(bytes(1_000_000))
        file.flush()
        os.fsync(file.fileno())
    pid = os.getpid()
    ours, theirs = procfs._read_linux(pid), procfs._read_with_psutil(pid)
    assert (ours.parent, ours.name) == (theirs.parent, theirs.name)
    assert ours.cpu_s > 0 and ours.cpu_s == pytest.approx(theirs.cpu_s, abs=0.1)
    assert ours.awaited_cpu_s > 0 and ours.awaited_cpu_s == pytest.approx(theirs.awaited_cpu_s, abs=0.02)
    assert ours.rss_bytes > 10_000_000 and ours.rss_bytes == pytest.approx(theirs.rss_bytes, rel=0.1)
    assert ours.written_bytes >= 1_000_000 and ours.written_bytes == theirs.written_bytes
    assert ours.read_bytes == theirs.read_bytes


@pytest.mark.parametrize("read", [procfs.read_stats, procfs._read_with_psutil])
def test_a_process_that_has_ended_raises_an_os_error(read) -> None:  # type: ignore[no-untyped-def]
    with subprocess.Popen(["true"]) as child:
        child.wait()
    with pytest.raises(OSError):
        read(child.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="names come from psutil there")
def test_a_name_may_hold_brackets_and_spaces(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as child:
        stats = procfs.read_stats(child.pid)
        child.kill()
    assert (stats.name, stats.parent) == (odd.name, os.getpid())
