"""Two drivers in two threads, of which one runs at a time; a plan says where they change.

A change comes only when the running driver is about to make a request. All that it does between two requests (files,
tasks) is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Thread

# A driver's step takes milliseconds. A plan that waits this long is a mistake of the plan.
LIMIT_S = 60.0
# A driver and the number of its requests; None: until it ends.
Stretch = tuple[str, int | None]


class Turns:
    """Gives the turn by a plan.

    Args:
        plan: in order; it ends with a stretch without a limit for each driver.
    """

    def __init__(self, plan: Sequence[Stretch]) -> None:
        self._plan, self._changed = list(plan), Condition()
        self._ended: set[str] = set()

    def before_request(self, driver: str) -> None:
        """Waits until this driver may make its next request."""
        with self._changed:
            if self._plan[0] == (driver, 0):
                self._next()
            self._wait(driver)
            name, left = self._plan[0]
            self._plan[0] = name, None if left is None else left - 1

    def run(self, drivers: dict[str, Callable[[], None]]) -> dict[str, BaseException | None]:
        """Runs all drivers to their ends; returns how each has ended."""
        ends: dict[str, BaseException | None] = dict.fromkeys(drivers)

        def whole(name: str) -> None:
            with self._changed:
                self._wait(name)
            try:
                drivers[name]()
            except BaseException as end:
                ends[name] = end
            with self._changed:
                self._ended.add(name)
                self._next()

        threads = [Thread(target=whole, args=(name,), daemon=True) for name in drivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), f"a driver waits for its turn: {self._plan}"
        return ends

    def _wait(self, driver: str) -> None:
        self._changed.wait_for(lambda: bool(self._plan) and self._plan[0][0] == driver, LIMIT_S)

    def _next(self) -> None:
        self._plan.pop(0)
        while self._plan and (self._plan[0][0] in self._ended or self._plan[0][1] == 0):
            self._plan.pop(0)
        self._changed.notify_all()
