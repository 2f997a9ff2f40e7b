"""A journal in an object store: our guarantees survive, each missing promise shows."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("obstore", reason="needs the extra s3")

from obstore.exceptions import AlreadyExistsError, GenericError

from proofs.object_states.search import lost_answers
from proofs.object_states.store import DONE, LATE, NEVER, Client, Cut, Killed, Objects
from proofs.object_states.turns import Turns
from proofs.object_states.variants import BROKEN, DECLARED, REDUNDANT, SOUND, Variant

# One of this many cases is judged here; `python -m proofs.object_states` judges all.
ONE_OF = {"lost answers": 1, "kills": 10, "second drivers": 60, "lags": 60}


def test_a_conditional_put_is_refused_for_an_existing_name() -> None:
    client = Client(Objects())
    client.put("a/b", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        client.put("a/b", b"2", mode="create")
    client.put("a/b", b"3")
    assert client.get("a/b").bytes() == b"3"


@pytest.mark.parametrize(("outcome", "there"), [(NEVER, False), (DONE, True)])
@pytest.mark.parametrize("kill", [True, False])
def test_a_put_without_an_answer_happens_or_not(outcome: str, there: bool, kill: bool) -> None:
    objects = Objects()
    client = Client(objects, cut=Cut(0, outcome, kill=kill))
    with pytest.raises(Killed if kill else GenericError):
        client.put("a/b", b"1")
    assert ("a/b" in objects.content) is there
    if kill:
        with pytest.raises(Killed):
            client.get("a/b")


def test_a_late_put_happens_between_later_requests() -> None:
    objects = Objects()
    with pytest.raises(Killed):
        Client(objects, cut=Cut(0, LATE, 2)).put("a/b", b"1", mode="create")
    successor = Client(objects)
    seen = [[each["path"] for page in successor.list("a") for each in page] for _ in range(4)]
    assert seen == [[], [], ["a/b"], ["a/b"]]


def test_drivers_change_where_the_plan_says() -> None:
    turns, order = Turns([("A", 2), ("B", 1), ("A", None), ("B", None)]), []
    before = threading.enumerate()

    def driver(name: str) -> None:
        for number in range(3):
            turns.before_request(name)
            order.append(f"{name}{number}")

    turns.run({"A": lambda: driver("A"), "B": lambda: driver("B")})
    assert order == ["A0", "A1", "B0", "A2", "B1", "B2"]
    assert [thread for thread in threading.enumerate() if thread not in before] == []


@pytest.mark.parametrize("variant", [*SOUND, *REDUNDANT], ids=lambda each: each.name)
def test_a_disturbed_driver_breaks_no_guarantee(variant: Variant) -> None:
    found = variant.run(next(every for text, every in ONE_OF.items() if text in variant.name))
    assert not variant.surprises(found), found.examples
    assert found.cases > 10, found


@pytest.mark.parametrize("variant", [*DECLARED, *BROKEN], ids=lambda each: each.name)
def test_a_missing_promise_shows(variant: Variant) -> None:
    found = variant.run(1 if variant.scenario is lost_answers else 5)  # it stops when it has found its anomaly
    assert not variant.surprises(found), found.wrong
