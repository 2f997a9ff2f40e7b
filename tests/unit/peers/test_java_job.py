"""The job is compiled by the JDK that runs it; a Java without a compiler is refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.downloads.java import Java
from oncebench.errors import MissingEnvironment
from peers.flink.settings import JOB
from peers.java_job import JavaJob, start
from peers.kafka_streams.settings import JOB as STREAMS
from pipeline.config import PipelineConfig


def java(home: Path, compiler: str | None) -> Java:
    (home / "bin").mkdir(parents=True)
    if compiler is not None:
        (home / "bin" / "javac").write_text(f"#!/bin/sh\n{compiler}\n")
        (home / "bin" / "javac").chmod(0o755)
    return Java(home, home / "bin" / "java", "17.0.1")


def test_a_java_without_a_compiler_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match=r"has no compiler .*Install a JDK.*JAVA_HOME"):
        JOB.compile(java(tmp_path / "jre", None), [], tmp_path / "classes")


def test_the_compilers_messages_are_shown(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match=r"(?s)does not compile with Java 17\.0\.1:.*Job\.java:7: error"):
        JOB.compile(java(tmp_path / "jdk", "echo 'Job.java:7: error' >&2; exit 1"), [], tmp_path / "classes")


@pytest.mark.parametrize("job", [JOB, STREAMS], ids=lambda job: job.name)
def test_the_job_is_compiled_once_and_whole(job: JavaJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    log = tmp_path / "log"
    fake = java(tmp_path / "jdk", f'echo "$@" >> {log}; for a; do [ "$p" = -d ] && mkdir -p "$a"; p=$a; done')
    first = job.compiled(fake, [Path("a.jar"), Path("b.jar")])
    assert job.compiled(fake, []) == first and first.is_dir()
    (command,) = log.read_text().splitlines()
    assert "--release 17" in command and "-cp a.jar:b.jar" in command and "Sessions.java" in command
    assert "EventCheck.java" in command  # shared by all jobs
    # The one job is not compiled with the other's sources.
    assert ("/flink/java/" in command, "/kafka_streams/java/" in command) == (job is JOB, job is STREAMS)
    assert list((tmp_path / "cache" / "peers").iterdir()) == [first]


def test_an_attempts_temporary_files_stay_in_its_run_folder(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "librocksdbjni.so").touch()  # of an attempt that was killed
    config = PipelineConfig("", "", {}, "", "", "", "", "", tmp_path, tmp_path)
    assert start(["java", "Job"], "flink", lambda _: {}, config) == [
        "java", f"-Djava.io.tmpdir={tmp_path}/tmp", "Job", f"{tmp_path}/flink.json",
    ]  # fmt: skip
    assert list((tmp_path / "tmp").iterdir()) == []
