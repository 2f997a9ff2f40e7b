"""The cache folder: refused if Java can't use its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.errors import MissingEnvironment


@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_a_path_that_separates_the_jars_of_a_list_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / name))
    with pytest.raises(MissingEnvironment, match=f"Java can't use the path .*{name}.*Set {CACHE_VARIABLE}"):
        cache_dir()


def test_a_path_in_any_language_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "josé y ana"))
    assert cache_dir() == tmp_path / "josé y ana"
