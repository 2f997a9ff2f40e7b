"""What the live view tells of the last seconds: rates, latency, time left, and when rows came again after a fault."""

from __future__ import annotations

from oncebench.commands import series
from oncebench.live.history import RATE_S, SPARK_S, SPARKS, History, sparkline
from oncebench.live.status import Seen
from oncebench.live.view import fields


class Run:
    """A run that is looked at twice a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.history = History(lambda: self.now)

    def look(self, sent: int = 0, visible: int = 0, p99: float | None = None, fault: str = "", phase: str = "loading",
             load_s: float | None = 10.0) -> dict[str, str]:  # fmt: skip
        seen = Seen(phase, {"sent": sent}, {"visible": visible, "p99_ms": p99}, {}, None, fault, load_s)
        self.history.add(seen)
        self.now += SPARK_S
        return dict(fields(seen, self.history))


def test_rates_are_those_of_the_last_seconds_and_a_stop_shows() -> None:
    run = Run()
    for second in range(10):
        shown = run.look(sent=1000 * second, visible=200 * second)
    assert (shown["events/s"], shown["rows/s"]) == ("2,000", "400")
    for _ in range(int(RATE_S / SPARK_S) + 2):
        shown = run.look(sent=9000, visible=1800)
    assert (shown["events/s"], shown["rows/s"]) == ("0", "0")


def test_the_first_look_has_no_rate() -> None:
    assert Run().look(sent=500)["events/s"] == "0"


def test_time_left_is_that_of_the_load_and_of_no_other_phase() -> None:
    run = Run()
    assert run.look(phase="priming")["phase"] == "priming"
    assert run.look()["phase"] == "loading, 10 s left"
    for _ in range(8):
        shown = run.look()
    assert shown["phase"] == "loading, 6 s left"
    assert run.look(phase="draining")["phase"] == "draining"
    assert Run().look(load_s=None)["phase"] == "loading"


def test_rows_come_again_when_there_are_more_than_at_the_fault() -> None:
    run = Run()
    run.look(visible=100)
    assert "again" not in run.look(visible=100, fault="mid-write:kill in batch 6, restarting")["fault"]
    run.look(visible=120, fault="mid-write:kill in batch 6, restarting")  # seen before the kill, told after it
    assert "again" not in run.look(visible=120, fault="mid-write:kill in batch 6")["fault"]
    shown = run.look(visible=140, fault="mid-write:kill in batch 6")
    assert shown["fault"] == "mid-write:kill in batch 6, rows again after 1.5 s"
    assert "again" not in run.look(visible=140, fault="mid-commit:kill in batch 9, restarting")["fault"]


def test_a_sparkline_has_a_bar_for_each_value_and_a_space_for_none() -> None:
    assert sparkline([0.0, 50.0, None, 100.0]) == "▁▅ █"
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0]) == "▁▁"
    run = Run()
    for at in range(2 * SPARKS):
        run.look(p99=float(at))
    assert len(run.history.sparkline) == SPARKS
    assert run.history.sparkline[-1] == "█"


def test_a_series_tells_how_long_the_rest_will_take() -> None:
    began = series.time.monotonic() - 600.0
    assert series.left(0, 10, began) == ""
    assert series.left(5, 10, began) == " (10 min left)"
    assert series.left(10, 10, began) == ""
