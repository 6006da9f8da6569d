"""Puts the changes of advice into a job file. Pure.

The configuration in a job's history says of each value where the run had it from. A value that came
from above the job file (``--conf``, an operator's argument) still beats the file: a note says so. A
key that is final in the site's file cannot be changed by any job: the advice that needs it is left
out whole, since its changes belong together. Of a file that was changed since the run a value that
already goes further than the advice stays.
"""

from __future__ import annotations

import re
from contextlib import suppress
from math import inf
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.advice.advice import Advice, Change
from tony_core.job.keys.key import Kind
from tony_core.job.keys.table import modern_name, table
from tony_core.job.mask import MASK, mask_value
from tony_core.job.units import parse_duration_s, parse_int, parse_memory_mb
from tony_core.job.xml_edit import CannotEdit, entries_by_key, set_values
from tony_core.job.xmlfile import Entry

SITE_FILE = "tony-site.xml"
_PLACE = re.compile(r"(.+):[0-9]+", re.DOTALL)  # file:line
_ARGUMENTS = ("argument", "program")


class Applied(NamedTuple):
    """A job file after its changes."""

    data: bytes
    changes: Tuple[Change, ...] = ()  # ``was``: what the file had, empty where it had nothing
    notes: Tuple[str, ...] = ()
    refused: Tuple[str, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        return {
            "changes": [change.to_json() for change in self.changes],
            "notes": list(self.notes),
            "refused": list(self.refused),
        }


def apply(
    data: bytes,
    file: str,
    advice: Sequence[Advice],
    settings: Mapping[str, Entry],
    final: Mapping[str, str],
) -> Applied:
    """The job file with the changes of all advice; raises :class:`CannotEdit`.

    ``settings`` is the run's configuration (:func:`read_settings`); ``final`` has the place of each
    key that the site's file seals here.
    """
    old = entries_by_key(data, file)
    values: Dict[str, str] = {}
    refused: List[str] = []
    for each in advice:
        wanted = {modern_name(change.key): change.value for change in each.changes}
        wrong = [_find_refusal(key, old, settings, final) for key in wanted]
        others = [key for key, value in wanted.items() if values.get(key, value) != value]
        if any(wrong):
            refused += [why for why in wrong if why and why not in refused]
        elif others:
            refused.append(
                f"{others[0]}: a worse problem asks for {values[others[0]]}; this one for"
                f" {wanted[others[0]]} ({each.rule}) is left out"
            )
        else:
            values.update(wanted)
    notes: List[str] = []
    was = {key: _had(key, advice, settings) for key in values}
    for key, value in tuple(values.items()):
        if key in old and old[key].text.strip() == value:
            del values[key]
        elif key in old and _goes_further(old[key], key, value, was[key]):
            del values[key]
            notes.append(
                f"{key}: the run had {mask_value(key, was[key])}, the file has"
                f" {mask_value(key, old[key].text.strip())} by now, so {value} is left out"
            )
    changes = tuple(
        Change(key, value, old[key].text.strip() if key in old else "")
        for key, value in values.items()
    )
    notes += [note for key in values for note in _notes(key, old, settings)]
    return Applied(set_values(data, values, file), changes, tuple(notes), tuple(refused))


def _had(key: str, advice: Sequence[Advice], settings: Mapping[str, Entry]) -> str:
    """What a run had for a key of its job file; empty where that is not known."""
    if key in settings and _is_above(settings[key].origin):
        return ""  # what the file has did not count
    for change in (change for each in advice for change in each.changes):
        if modern_name(change.key) == key and change.was:
            return change.was
    if key in settings:
        return settings[key].text.strip()
    found = table().find(key)
    return (found.key.default or "") if settings and found is not None else ""


def _goes_further(present: Entry, key: str, value: str, was: str) -> bool:
    """Whether a change would undo what a file has by now: it goes the other way from there."""
    found = table().find(key)
    if found is None or not was:
        return False
    if found.key.kind is Kind.CHOICE:
        return present.text.strip().lower() not in (was.strip().lower(), value)
    before, after, now = (
        _number(name, text)
        for name, text in ((key, was), (key, value), (present.key, present.text))
    )
    if before is None or after is None or now is None:
        return False
    return (after < now) if after > before else (after > now)


def _number(key: str, text: str) -> Optional[float]:
    """A value of a key, to compare it with others; None where it is none that can be."""
    found = table().find(key)
    with suppress(ValueError):
        if found is not None and found.key.kind is Kind.MEMORY:
            return float(parse_memory_mb(text))
        if found is not None and found.key.kind is Kind.INT:
            return float(parse_int(text))
        if found is not None and found.key.kind is Kind.DURATION:
            return parse_duration_s(text, found.key.unit) or inf
    return None


def read_settings(config: bytes) -> Dict[str, Entry]:
    """The configuration of a run by key; empty where it was not kept or is damaged."""
    if not config:
        return {}
    try:
        return entries_by_key(config, "the configuration in history")
    except CannotEdit:
        return {}


def overrides(settings: Mapping[str, Entry]) -> Dict[str, str]:
    """What a run had from above its job file, as far as history shows it unmasked."""
    return {
        key: entry.text
        for key, entry in settings.items()
        if _is_above(entry.origin) and MASK not in entry.text and "," not in entry.origin
    }


def job_files(settings: Mapping[str, Entry]) -> Tuple[str, ...]:
    """The files that a run's configuration names as the place of values, without the site's."""
    places = (_PLACE.fullmatch(entry.origin) for entry in settings.values())
    found = dict.fromkeys(match[1] for match in places if match is not None)
    return tuple(file for file in found if file.rpartition("/")[2] != SITE_FILE)


def find_difference(data: bytes, file: str, settings: Mapping[str, Entry]) -> str:
    """The first key in which a job file is not the one that a run had; empty: it is the same.

    ``file`` is the name that the run's configuration has.
    """
    own = entries_by_key(data, file)
    for key, entry in settings.items():
        place = _PLACE.fullmatch(entry.origin)
        if place is not None and place[1] == file and key not in own:
            return key
    for key, entry in own.items():
        known = settings.get(key)
        if known is None:
            return key
        place = _PLACE.fullmatch(known.origin)
        is_comparable = "${" not in entry.text and entry.key == key
        if place is None or place[1] != file or not is_comparable:
            continue
        if mask_value(key, entry.text).strip() != known.text.strip():
            return key
    return ""


def _find_refusal(
    key: str, old: Mapping[str, Entry], settings: Mapping[str, Entry], final: Mapping[str, str]
) -> str:
    """Why a key cannot be changed; empty where it can."""
    where: Optional[str] = final.get(key)
    known = settings.get(key)
    if where is None and known is not None and known.final:
        own = old.get(key)
        where = None if own is not None and own.final else known.origin or "the site's file"
    if where is None:
        return ""
    return f"{key} is final in {where}, so no job can change it; ask the administrator"


def _notes(key: str, old: Mapping[str, Entry], settings: Mapping[str, Entry]) -> List[str]:
    known = settings.get(key)
    origin = known.origin if known is not None else ""
    if origin == "program":
        return [f"{key}: the run had it from its Python program; change it there as well"]
    if _is_above(origin):
        return [
            f"{key}: the run had it from {origin}, which beats the job file; leave it out there"
        ]
    if key in old or not origin:
        return []
    return [f"{key}: the run had it from {origin}; the job file now sets it, which beats that"]


def _is_above(origin: str) -> bool:
    """Whether a value is from above the job file: the command line, an operator's argument."""
    last = origin.rpartition(", ")[2]
    return last.startswith("--") or last in _ARGUMENTS
