"""Finds the healthy settings of the full comparison, and those of sweeps.

Promise: pure functions of settings and rounds.
The full comparison is recognised by its load (rate, warm-up and sessions of the profile `full`) and by the defaults in
every other field. The number of its runs does not matter. The summary of a sink covers its full comparison alone.
A sweep consists of settings of one sink that differ in one swept field, and in the sessions that the field requires.
They must share a series, or be what `compare --profile full --sweep` makes around the full comparison.
Runs of `oncebench sustain` are not a sweep: each series picks its own rate.
What can go wrong: if each value of a field ran in a series of its own, away from the full comparison, they are not a
sweep either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncebench.report.comparisons.paired import ENGINE, Rounds, Setting, fields_text
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.sweeps import SWEEPS

_PROFILE = PROFILES["full"]
RATE = _PROFILE.rate
_FULL = Cell("", "", "", rate=RATE, sessions=_PROFILE.sessions, warmup_s=_PROFILE.warmup_s)
_OWN = ("sink", "guarantee", "variant", "seed")  # fields in which runs of one setting, or of two sinks, differ
_EXPECTED = {name: value for name, value in _FULL.as_json().items() if name not in _OWN}
# The values around the full comparison by swept field, each with the sessions that it requires.
_AROUND = {
    sweep.field: {(getattr(cell, sweep.field), cell.sessions) for cell in (_FULL, *sweep.of([_FULL]))}
    for sweep in SWEEPS.values()
}  # fmt: skip
FIELDS = tuple(sweep.field for sweep in SWEEPS.values())
# The groups of settings, in the order in which they are displayed: see `groups_of`.
MAIN, OTHER = "", "other settings"
ORDER = (MAIN, *FIELDS, OTHER)


@dataclass(frozen=True)
class SweptSettings:
    """Settings of one sink along one field, sorted by its value."""

    sink: str
    field: str
    settings: tuple[Setting, ...]


def is_full(setting: Setting) -> bool:
    """Whether a setting is the full comparison.

    Fields that an older report lacks count as the default. Another engine than Spark has no full comparison.
    """
    config = setting.config
    return (
        "rate" in config
        and ENGINE not in config
        and all(config.get(name, value) == value for name, value in _EXPECTED.items())
    )


def sweeps(found: Mapping[Setting, Rounds]) -> list[SweptSettings]:
    """Every sweep, by sink and field."""
    made = []
    for sink in sorted({setting.sink for setting in found}):
        for field in FIELDS:
            alike: dict[str, list[Setting]] = {}
            for setting in (each for each in found if each.sink == sink and field in each.config):
                rest = {name: value for name, value in setting.config.items() if name not in (field, "sessions")}
                alike.setdefault(json.dumps(rest, sort_keys=True), []).append(setting)
            for _, group in sorted(alike.items()):
                made += [
                    SweptSettings(sink, field, tuple(sorted(part, key=lambda each: sort_key(each, [field]))))
                    for part in _together(group, found, field)
                    if len({str(each.config[field]) for each in part}) > 1
                ]
    return made


def full_of(found: Mapping[Setting, Rounds]) -> dict[str, Setting]:
    """The full comparison by sink.

    If it was measured by older and by newer rules, the newest counts.
    """

    def newest(setting: Setting) -> tuple[int, int]:
        rounds = found[setting]
        return max(report.get("schema", 1) for runs in rounds.values() for report in runs.values()), len(rounds)

    return {setting.sink: setting for setting in sorted(filter(is_full, found), key=newest)}


def groups_of(found: Mapping[Setting, Rounds]) -> dict[Setting, str]:
    """The group in which each setting is displayed.

    Settings of a sweep belong to the swept field. MAIN is the full comparison, and every setting outside a sweep whose
    sink has no full comparison. OTHER is a setting outside a sweep whose sink has a full comparison.
    """
    fields = {setting: each.field for each in reversed(sweeps(found)) for setting in each.settings}
    full = full_of(found)
    groups = {setting: fields.get(setting, OTHER if setting.sink in full else MAIN) for setting in found}
    return groups | dict.fromkeys(full.values(), MAIN)


def in_order(found: Mapping[Setting, Rounds]) -> list[Setting]:
    """Settings by sink, the full comparison first, then each sweep by its values."""
    groups = groups_of(found)

    def place(setting: Setting) -> tuple[Any, ...]:
        first = sort_key(setting, [groups[setting]])
        return setting.sink, ORDER.index(groups[setting]), first, sort_key(setting, FIELDS), setting.rest

    return sorted(found, key=place)


def setting_text(setting: Setting, names: Sequence[str]) -> str:
    """The fields in which settings differ, with this setting's values: `trigger 100 ms`.

    With several fields, those that equal the full comparison are left out.
    """
    return fields_text(
        setting, [name for name in names if len(names) == 1 or setting.config.get(name) != _EXPECTED.get(name)]
    )


def sort_key(setting: Setting, names: Iterable[str]) -> tuple[Any, ...]:
    """A key that sorts settings by these fields.

    A missing value comes first, then numbers by size, then text.
    """
    return tuple(_value_key(setting.config.get(name)) for name in names)


def _value_key(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))


def _together(group: Sequence[Setting], found: Mapping[Setting, Rounds], field: str) -> list[list[Setting]]:
    """Settings that share a series, or that all lie around the full comparison."""
    parts: list[tuple[set[str], list[Setting]]] = []
    full = any(map(is_full, group))
    for setting in group:
        series = {name for name, _, _ in found[setting] if name}
        if full and (setting.config[field], setting.config.get("sessions")) in _AROUND[field]:
            series.add(_FULL.title)
        touching = [part for part in parts if series & part[0]]
        joined = (series.union(*(part[0] for part in touching)), [setting, *(s for part in touching for s in part[1])])
        parts = [*(part for part in parts if part not in touching), joined]
    return [settings for _, settings in parts]
