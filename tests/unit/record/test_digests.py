"""A stored run that was damaged afterwards is unknown, and its damaged file is named."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from oncebench.measure import judge_again
from oncebench.record import FACTS, FINAL
from oncebench.record.digests import FILE, altered, write_digests
from oncebench.record.streams import read_stream, write_stream
from oncebench.record.validation import RecordError
from tests.unit.audit.test_earlier_run import STORED

READ = sorted(
    str(path.relative_to(STORED))
    for path in STORED.rglob("*")
    if path.is_file() and path.name not in ("report.json", "oncebench-work.json")
)
ZEROED = 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with digests, whose run was kept."""
    copy = Path(shutil.copytree(STORED, tmp_path / "run"))
    facts = json.loads((copy / FACTS).read_bytes())
    (copy / FACTS).write_text(json.dumps({**facts, "digests": True}))
    write_digests(copy)
    return copy


@pytest.mark.parametrize("seed", range(3))
def test_zeroed_values_of_the_final_read_are_unknown(folder: Path, seed: int) -> None:
    path = folder / "final.arrow"
    content = bytearray(path.read_bytes())
    at = random.Random(seed).randrange(len(content) // 2, len(content) - ZEROED)  # within the rows' values
    content[at : at + ZEROED] = bytes(ZEROED)
    path.write_bytes(content)
    report = judge_again(folder)
    assert (report["verdict"], report["broken_by"]) == ("unknown", [])
    assert report["reasons"][0].startswith("final.arrow is not as the run wrote it: its SHA-256 differs.")


def test_damaged_values_that_no_audit_can_count_are_named(folder: Path) -> None:
    at = folder / "final.arrow"
    rows = read_stream(at, FINAL).table.to_pydict()
    at.unlink()
    write_stream(at, FINAL, [{**rows, "partition": [-1] * len(rows["partition"])}])
    with pytest.raises(RecordError, match=r"cannot be judged. final\.arrow is not as the run wrote it"):
        judge_again(folder)


@pytest.mark.parametrize("damage", ["changed", "cut", "removed"])
@pytest.mark.parametrize("name", READ)
def test_damage_to_any_file_of_a_run_is_named(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    content = path.read_bytes()
    match damage:
        case "changed":
            path.write_bytes(bytes(1) + content[1:])
        case "cut":
            path.write_bytes(content[:-1])
        case "removed":
            path.unlink()
    (sentence,) = altered(folder)
    assert sentence.startswith(f"{name} is not as the run wrote it: ")
    assert "sound copy" in sentence


def test_an_untouched_run_has_no_altered_file(folder: Path) -> None:
    assert altered(folder) == ()
    assert judge_again(folder)["verdict"] == "kept"


def test_a_run_whose_digests_are_gone_is_unknown(folder: Path) -> None:
    (folder / FILE).unlink()
    report = judge_again(folder)
    assert (report["verdict"], len(report["reasons"])) == ("unknown", 1)
    assert report["reasons"][0].startswith(f"{FILE} is not as the run wrote it: it is missing. Take the folder")


def test_an_earlier_run_that_wrote_no_digests_is_judged(folder: Path) -> None:
    (folder / FILE).unlink()
    facts = json.loads((folder / FACTS).read_bytes())
    (folder / FACTS).write_text(json.dumps({**facts, "digests": False}))
    assert judge_again(folder)["verdict"] == "kept"


def test_damaged_digests_are_refused(folder: Path) -> None:
    for content in ("", "{", '{"files": {"final.arrow": 3}}'):
        (folder / FILE).write_text(content)
        with pytest.raises(RecordError, match=rf"{FILE}.*sound copy"):
            altered(folder)


def test_digests_hold_every_file_that_the_audit_reads(folder: Path) -> None:
    assert sorted(json.loads((folder / FILE).read_bytes())["files"]) == READ
