"""Finding and fetching Java, with scripts that answer like Java. No JVM, no network."""

import hashlib
import http.server
import io
import platform
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.downloads import java
from oncebench.downloads.java import find_java
from oncebench.errors import ExitCode, MissingEnvironment, UserError

SCRIPT = """#!/bin/sh
home=$(cd "$(dirname "$0")/.." && pwd)
echo "Property settings:" >&2
echo "    java.home = $home" >&2
echo "    java.version = {version}" >&2
"""
PLATFORM = f"{sys.platform}-{platform.machine()}"


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(SCRIPT.format(version=version))
    executable.chmod(0o755)
    return home


def archive_of(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


class Mirror:
    """A local web server with one archive, and the requests that it received."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.body = b""
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.requests.append(self.path)
                self.send_response(200 if self.path == "/jdks/jdk.tar.gz" else 404)
                self.send_header("Content-Length", str(len(mirror.body)))
                self.end_headers()
                self.wfile.write(mirror.body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jdks"


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither JAVA_HOME nor java on the PATH, an empty cache, no network."""
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "dirname"):
        (tmp_path / "bin" / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("ONCEBENCH_FETCH_JAVA", raising=False)
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONCEBENCH_JDK_URL", "http://127.0.0.1:1/none")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def put_on_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    mirror = Mirror()
    monkeypatch.setenv("ONCEBENCH_JDK_URL", mirror.url + "/")
    thread = threading.Thread(target=mirror.server.serve_forever, args=(0.01,))
    thread.start()
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()
    thread.join()


def offer(mirror: Mirror, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an archive of `files` on the mirror and pin its checksum."""
    mirror.body = archive_of(files)
    pins = tmp_path / "jdk.toml"
    sha256 = hashlib.sha256(mirror.body).hexdigest()
    pins.write_text(f'version = "21.0.1+1"\n[{PLATFORM}]\narchive = "jdk.tar.gz"\nsha256 = "{sha256}"\n')
    monkeypatch.setattr(java, "_PINS", pins)


def test_JAVA_HOME_comes_before_the_PATH(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(fake_java(tmp_path / "b", "17.0.15"), tmp_path)
    home = fake_java(tmp_path / "a", "21.0.9")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.version, found.major, found.home) == ("21.0.9", 21, home)
    assert found.executable == home / "bin" / "java"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea", "25.0.1"])
def test_each_supported_version_is_recognised(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "a", version)))
    assert find_java().version == version


def test_an_unsupported_JAVA_HOME_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    put_on_path(fake_java(tmp_path / "new", "25.0.1"), tmp_path)
    assert find_java().version == "25.0.1"
    assert "using Java 25.0.1" in caplog.text and "JAVA_HOME" in caplog.text and "is Java 11.0.2" in caplog.text
    caplog.clear()
    monkeypatch.delenv("JAVA_HOME")
    find_java()
    assert caplog.text == ""


def test_the_error_names_each_candidate_and_why_it_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    put_on_path(fake_java(tmp_path / "old", "1.8.0_402"), tmp_path)
    monkeypatch.setenv("ONCEBENCH_FETCH_JAVA", "0")
    with pytest.raises(MissingEnvironment) as caught:
        find_java()
    message = str(caught.value)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert "no Java 17, 21 or 25" in message
    assert f"JAVA_HOME ({tmp_path}/nowhere/bin/java) can't be run: No such file or directory" in message
    assert "is Java 1.8.0_402" in message
    assert "unset ONCEBENCH_FETCH_JAVA" in message


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", SCRIPT.format(version="21") + "exit 1\n"]
)
def test_a_program_that_only_pretends_to_be_java_is_refused(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "odd", "21")
    (home / "bin" / "java").write_text(script)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(MissingEnvironment, match=r"fails when run|reports no version"):
        find_java(may_fetch=False)


def test_a_java_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "hangs", "21")
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    (tmp_path / "bin" / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setattr(java, "_RUN_TIMEOUT_S", 0.3)
    with pytest.raises(MissingEnvironment, match=r"did not answer within 0\.3 s"):
        find_java(may_fetch=False)


@pytest.mark.parametrize("root", ["jdk-21.0.1+1", "jdk-21.0.1+1/Contents/Home"], ids=["linux", "macos"])
def test_a_missing_java_is_fetched_once(
    root: str, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(mirror, {f"{root}/bin/java": SCRIPT.format(version="21.0.1")}, tmp_path, monkeypatch)
    fetched = find_java()
    assert fetched.version == "21.0.1"
    assert fetched.executable.is_relative_to(tmp_path / "cache")
    assert find_java(may_fetch=False) == fetched
    assert mirror.requests == ["/jdks/jdk.tar.gz"]
    assert len([*(tmp_path / "cache" / "jdk").iterdir()]) == 1


@pytest.mark.parametrize("damage", ["", "#!/bin/sh\nexit 1\n"], ids=["empty", "broken"])
def test_a_damaged_jdk_in_the_cache_is_fetched_again(
    damage: str, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offer(mirror, {"jdk/bin/java": SCRIPT.format(version="21.0.1")}, tmp_path, monkeypatch)
    fetched = find_java()
    fetched.executable.write_text(damage)
    (tmp_path / "cache" / "jdk" / ".preparing-killed" / "made").mkdir(parents=True)
    assert find_java() == fetched
    assert len(mirror.requests) == 2
    assert "passed over: the cache" in caplog.text
    assert len([*(tmp_path / "cache" / "jdk").iterdir()]) == 1


def test_nothing_is_fetched_if_downloads_are_off(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(mirror, {"jdk/bin/java": SCRIPT.format(version="21.0.1")}, tmp_path, monkeypatch)
    with pytest.raises(MissingEnvironment):
        find_java(may_fetch=False)
    for no in ("0", "no", "False"):
        monkeypatch.setenv("ONCEBENCH_FETCH_JAVA", no)
        with pytest.raises(MissingEnvironment):
            find_java()
    assert mirror.requests == []
    assert not (tmp_path / "cache").exists()


def test_an_archive_with_a_wrong_checksum_is_never_unpacked(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(mirror, {"jdk/bin/java": SCRIPT.format(version="21.0.1")}, tmp_path, monkeypatch)
    mirror.body = archive_of({"jdk/bin/java": "#!/bin/sh\necho evil\n"})
    with pytest.raises(UserError, match=r"not the file that was tested.*ONCEBENCH_JDK_URL"):
        find_java()
    assert list((tmp_path / "cache").rglob("java")) == []


def test_a_broken_archive_leaves_no_partial_jdk(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(mirror, {"jdk/bin/java": SCRIPT.format(version="21.0.1")}, tmp_path, monkeypatch)
    whole = mirror.body
    mirror.body = whole[: len(whole) // 2]
    pins = (tmp_path / "jdk.toml").read_text()
    new = hashlib.sha256(mirror.body).hexdigest()
    (tmp_path / "jdk.toml").write_text(pins.replace(hashlib.sha256(whole).hexdigest(), new))
    with pytest.raises(MissingEnvironment, match="could not be unpacked"):
        find_java()
    assert [*(tmp_path / "cache" / "jdk").iterdir()] == []


def test_an_archive_without_java_gives_advice(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(mirror, {"jdk/README": "no java here"}, tmp_path, monkeypatch)
    with pytest.raises(MissingEnvironment, match=r"holds no bin/java.*JAVA_HOME"):
        find_java()


def test_a_fetched_java_that_does_not_run_gives_advice(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(mirror, {"jdk/bin/java": "#!/bin/sh\nexit 127\n"}, tmp_path, monkeypatch)
    with pytest.raises(MissingEnvironment, match=r"fails when run.*Install one for this system and set JAVA_HOME"):
        find_java()


def test_an_unreachable_mirror_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match=r"127\.0\.0\.1:1/none/.* could not be fetched.*ONCEBENCH_JDK_URL"):
        find_java()


def test_a_platform_without_a_pinned_jdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(MissingEnvironment, match=f"There is no JDK to fetch for {sys.platform}-pdp11: install one"):
        find_java()


def test_every_pinned_jdk_has_a_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64")):
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        pin = java._pin()
        assert pin is not None
        assert len(bytes.fromhex(pin.sha256)) == 32
        assert pin.version.replace("+", "_") in pin.archive
