"""Locked jars from a local repository, and the lock files themselves. No JVM, no network."""

import hashlib
import http.server
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from oncebench.downloads import maven
from oncebench.downloads.cache import cache_dir
from oncebench.downloads.maven import jars
from oncebench.downloads.verified import fetch
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from tools.maven_lock import BUNDLES

JARS = {"one": b"first" * 1000, "two": b"second" * 1000}
ENTRY = """
[[dependencies]]
groupId = "org.example"
artifactId = "{name}"
version = "1.0"
packaging = "jar"
sha256 = "{sha256}"
"""


class Repository:
    """A Maven repository on loopback that counts requests and can fail on purpose."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.files = {f"/org/example/{name}/1.0/{name}-1.0.jar": body for name, body in JARS.items()}
        self.errors: list[int] = []
        self.missing_bytes = 0
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.requests[self.path] += 1
                body = repository.files.get(self.path)
                status = repository.errors.pop() if repository.errors else 200 if body is not None else 404
                self.send_response(status)
                self.send_header("Content-Length", str(len(body or b"") + repository.missing_bytes))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    locks = tmp_path / "locks"
    locks.mkdir()
    entries = [ENTRY.format(name=name, sha256=hashlib.sha256(body).hexdigest()) for name, body in JARS.items()]
    (locks / "pair.lock.toml").write_text("".join(entries))
    repository = Repository()
    monkeypatch.setattr(maven, "LOCKS", locks)
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONCEBENCH_MAVEN_REPOSITORY", repository.url + "/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    thread = threading.Thread(target=repository.server.serve_forever, args=(0.01,))
    thread.start()
    yield repository
    repository.server.shutdown()
    repository.server.server_close()
    thread.join()


def contents(paths: tuple[Path, ...]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def left_behind(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob(".fetch-*"))


def test_jars_are_fetched_once(repository: Repository) -> None:
    assert contents(maven.jars("pair")) == list(JARS.values())
    assert contents(maven.jars("pair")) == list(JARS.values())
    assert set(repository.requests.values()) == {1}


def test_an_unchanged_jar_is_not_hashed_again(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.jars("pair")
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert all(map(maven.is_verified, maven.artifacts("pair")))


def test_a_download_is_announced_with_its_number_of_jars(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncebench")
    maven.jars("pair")[0].unlink()
    maven.jars("pair")
    assert [text.partition(" into ")[0] for text in caplog.messages] == [
        "fetching 2 jars for pair",
        "fetching 1 jar for pair",
    ]


@pytest.mark.parametrize("damage", [b"", b"FIRST" + JARS["one"][5:], JARS["one"][:-1]], ids=["empty", "changed", "cut"])
def test_a_damaged_jar_is_fetched_again(repository: Repository, damage: bytes) -> None:
    jar = maven.jars("pair")[0]
    jar.write_bytes(damage)
    assert contents(maven.jars("pair")) == list(JARS.values())
    assert repository.requests[f"/org/example/one/1.0/{jar.name}"] == 2


def test_a_forged_record_of_a_check_is_ignored(repository: Repository) -> None:
    jar = maven.jars("pair")[0]
    jar.with_suffix(".verified").write_text("all is well")
    jar.write_bytes(b"evil")
    assert not maven.is_verified(maven.artifacts("pair")[0])


def test_other_bytes_than_the_locked_ones_are_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.files["/org/example/two/1.0/two-1.0.jar"] = b"evil"
    with pytest.raises(UserError, match=r"not the file that was tested.*ONCEBENCH_MAVEN_REPOSITORY") as caught:
        maven.jars("pair")
    assert caught.value.exit_code == ExitCode.ERROR
    assert hashlib.sha256(b"evil").hexdigest() in str(caught.value)
    assert not (tmp_path / "cache/jars/org/example/two/1.0/two-1.0.jar").exists()
    assert left_behind(tmp_path) == []


def test_a_temporary_server_error_is_retried(repository: Repository) -> None:
    repository.errors = [503, 500]
    assert contents(maven.jars("pair")) == list(JARS.values())


def test_a_missing_jar_is_requested_once_and_names_the_mirror_variable(repository: Repository) -> None:
    del repository.files["/org/example/two/1.0/two-1.0.jar"]
    with pytest.raises(MissingEnvironment, match=r"two-1\.0\.jar.*HTTP 404.*ONCEBENCH_MAVEN_REPOSITORY") as caught:
        maven.jars("pair")
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert repository.requests["/org/example/two/1.0/two-1.0.jar"] == 1


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_missing_certificates_are_not_reported_as_a_full_disk(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "/none/bundle.pem")
    with pytest.raises(
        MissingEnvironment, match=r"could not be fetched.*/none/bundle.pem\). Correct or unset REQUESTS_"
    ):
        fetch("https://127.0.0.1:1/x.jar", tmp_path / "x.jar", "0" * 64, "MIRROR")


def test_a_failure_is_reported_with_its_text(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match=r"InvalidSchema: No connection adapters were found for 'gopher://"):
        fetch("gopher://x/y", tmp_path / "x.jar", "0" * 64, "MIRROR")


def test_the_rest_of_a_killed_download_is_removed(repository: Repository) -> None:
    jar = jars("pair")[0]
    jar.unlink()
    (jar.parent / ".fetch-killed").write_text("half")
    jars("pair")
    assert jar.is_file() and not (jar.parent / ".fetch-killed").exists()


def test_a_broken_transfer_keeps_nothing(repository: Repository, tmp_path: Path) -> None:
    repository.missing_bytes = 10
    with pytest.raises(MissingEnvironment, match="could not be fetched"):
        maven.jars("pair")
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "cache/jars").rglob("*.jar")) == []


def test_without_network_the_error_names_the_mirror_variable(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEBENCH_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    with pytest.raises(MissingEnvironment, match=r"ConnectionError.*set ONCEBENCH_MAVEN_REPOSITORY to a mirror"):
        maven.jars("pair")


def test_an_unwritable_cache_names_its_variable(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(MissingEnvironment, match=r"can't be written.*ONCEBENCH_CACHE"):
        maven.jars("pair")


def test_parallel_runs_fetch_each_jar_once(repository: Repository) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(maven.jars, ["pair"] * 4) == [maven.jars("pair")] * 4
    assert set(repository.requests.values()) == {1}


def test_an_unknown_bundle_lists_the_available_ones(repository: Repository) -> None:
    with pytest.raises(KeyError, match="pair"):
        maven.jars("other")


@pytest.fixture(params=sorted(BUNDLES))
def bundle(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_bundle_is_locked_by_checksum(bundle: str) -> None:
    locked = maven.artifacts(bundle)
    assert {f"{name}.lock.toml" for name in BUNDLES} == {path.name for path in maven.LOCKS.glob("*.lock.toml")}
    assert all(len(bytes.fromhex(artifact.sha256)) == 32 for artifact in locked)
    assert len({(a.group, a.name) for a in locked}) == len(locked)
    assert set(BUNDLES[bundle].coordinates) <= {f"{a.group}:{a.name}:{a.version}" for a in locked}


def test_lock_files_name_no_host() -> None:
    for lock in maven.LOCKS.iterdir():
        assert "://" not in lock.read_text(), lock.name


def test_no_bundle_repeats_a_jar_of_pyspark(bundle: str) -> None:
    shipped = {path.name.rsplit("-", 1)[0] for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert len(shipped) > 200
    if BUNDLES[bundle].for_spark:
        assert shipped.isdisjoint(artifact.name for artifact in maven.artifacts(bundle))


def test_a_read_only_cache_still_serves(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.jars("pair")
    for note in (cache_dir() / "jars").rglob("*.verified"):
        note.unlink()
    refuse: Callable[..., int] = lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "read-only"))  # noqa: E731
    monkeypatch.setattr(Path, "write_text", refuse)
    assert contents(maven.jars("pair")) == list(JARS.values())
