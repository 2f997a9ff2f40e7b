"""Which healthy settings are the full comparison, and which belong to sweeps: pure functions of settings and rounds.

Promise: the full comparison is told by its load (rate, warm-up, sessions: those of the profile `full`) and by standing
at every other default, not by how many runs there are of it; what is summed up for a sink is of it alone. A sweep is
settings of one sink that differ in one swept field (and in how many sessions that takes), and that ran in one series or
are what `compare --profile full --sweep` makes around the full comparison: two series of `oncebench sustain`, each at
its own rate, are none. What can go wrong: a sweep of which each value ran in a series of its own, away from the full
comparison, is none either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncebench.report.comparisons.paired import Rounds, Setting, in_fields
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.sweeps import SWEEPS

_PROFILE = PROFILES["full"]
RATE = _PROFILE.rate
_FULL = Cell("", "", "", rate=RATE, sessions=round(RATE * _PROFILE.duration_s / 100), warmup_s=_PROFILE.warmup_s)
_OWN = ("sink", "guarantee", "variant", "seed")  # what tells runs of one setting, or those of two sinks, apart
_EXPECTED = {name: value for name, value in _FULL.as_json().items() if name not in _OWN}
# By swept field the values around the full comparison, with the sessions that each takes.
_AROUND = {
    sweep.field: {(getattr(cell, sweep.field), cell.sessions) for cell in (_FULL, *sweep.of([_FULL]))}
    for sweep in SWEEPS.values()
}  # fmt: skip
FIELDS = tuple(sweep.field for sweep in SWEEPS.values())
# Under what a setting is shown, in this order: see `groups_of`.
MAIN, OTHER = "", "other settings"
ORDER = (MAIN, *FIELDS, OTHER)


@dataclass(frozen=True)
class Swept:
    """Settings of one sink along one field, by its value."""

    sink: str
    field: str
    settings: tuple[Setting, ...]


def is_full(setting: Setting) -> bool:
    """Whether a setting is that of the full comparison; of fields that an older report does not tell it had none."""
    config = setting.config
    return "rate" in config and all(config.get(name, value) == value for name, value in _EXPECTED.items())


def sweeps(found: Mapping[Setting, Rounds]) -> list[Swept]:
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
                    Swept(sink, field, tuple(sorted(part, key=lambda each: by_value(each, [field]))))
                    for part in _together(group, found, field)
                    if len({str(each.config[field]) for each in part}) > 1
                ]
    return made


def full_of(found: Mapping[Setting, Rounds]) -> dict[str, Setting]:
    """By sink the setting of its full comparison: of several, measured by older rules and by newer ones, the newest."""

    def newest(setting: Setting) -> tuple[int, int]:
        rounds = found[setting]
        return max(report.get("schema", 1) for here in rounds.values() for report in here.values()), len(rounds)

    return {setting.sink: setting for setting in sorted(filter(is_full, found), key=newest)}


def groups_of(found: Mapping[Setting, Rounds]) -> dict[Setting, str]:
    """Under what each setting is shown: the swept field; MAIN for the full comparison and, where its sink has none, for
    what is in no sweep; OTHER for what is in none beside a full one."""
    fields = {setting: each.field for each in reversed(sweeps(found)) for setting in each.settings}
    full = full_of(found)
    groups = {
        setting: fields.get(setting, OTHER if setting.sink in full else MAIN) for setting in found
    }  # fmt: skip
    return groups | dict.fromkeys(full.values(), MAIN)


def in_order(found: Mapping[Setting, Rounds]) -> list[Setting]:
    """Settings by sink, the full comparison first, then each sweep by its values."""
    groups = groups_of(found)

    def place(setting: Setting) -> tuple[Any, ...]:
        first = by_value(setting, [groups[setting]])
        return setting.sink, ORDER.index(groups[setting]), first, by_value(setting, FIELDS), setting.rest

    return sorted(found, key=place)


def setting_in_words(setting: Setting, names: Sequence[str]) -> str:
    """What a setting has in the fields in which settings differ: `trigger 100 ms`; where these are several, without
    those that are as in the full comparison."""
    return in_fields(
        setting, [name for name in names if len(names) == 1 or setting.config.get(name) != _EXPECTED.get(name)]
    )


def by_value(setting: Setting, names: Iterable[str]) -> tuple[Any, ...]:
    """What sorts settings by these fields: numbers by their size and before words, nothing before both."""
    return tuple(_in_order(setting.config.get(name)) for name in names)


def _in_order(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))


def _together(group: Sequence[Setting], found: Mapping[Setting, Rounds], field: str) -> list[list[Setting]]:
    """Settings that belong together: by a series that they share, or all those around the full comparison."""
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
