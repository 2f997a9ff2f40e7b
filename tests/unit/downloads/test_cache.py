"""The cache folder: refused if Java can't use its path."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.errors import MissingEnvironment
from oncebench.servers import doctor


@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_a_path_that_separates_the_jars_of_a_list_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / name))
    with pytest.raises(MissingEnvironment, match=f"Java can't use the path .*{name}.*Set {CACHE_VARIABLE}"):
        cache_dir()


@pytest.mark.parametrize("value", ["", "~/cache"])
def test_a_user_without_a_home_is_asked_for_a_folder(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(_: object) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, value)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    with pytest.raises(MissingEnvironment, match=f"this user has no home. Set {CACHE_VARIABLE} to a folder"):
        cache_dir()
    failed = {check.name: check.detail for check in doctor.checks() if not check.ok}
    assert "no home" in failed["cache"] and "no home" in failed["jars"]


def test_a_path_in_any_language_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "josé y ana"))
    assert cache_dir() == tmp_path / "josé y ana"
