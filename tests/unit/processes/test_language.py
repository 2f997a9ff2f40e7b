"""Servers report errors in English, and still open files with any letter in their path."""

from __future__ import annotations

import pytest

from oncebench.processes.language import in_english


@pytest.mark.parametrize(
    ("theirs", "letters"),
    [
        ({"LANG": "de_DE.UTF-8"}, "de_DE.UTF-8"),
        ({"LANG": "C", "LC_CTYPE": "fr_FR.utf8"}, "fr_FR.utf8"),
        ({"LC_ALL": "ja_JP.UTF-8", "LANG": "C"}, "ja_JP.UTF-8"),
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({}, "C.UTF-8"),
    ],
)
def test_messages_are_english_and_letters_are_the_users(theirs: dict[str, str], letters: str) -> None:
    found = in_english({**theirs, "LANGUAGE": "de", "PATH": "/bin"})
    assert (found["LC_MESSAGES"], found["LC_CTYPE"], found["PATH"]) == ("C", letters, "/bin")
    assert not {"LC_ALL", "LANGUAGE"} & found.keys(), "they would take precedence"
