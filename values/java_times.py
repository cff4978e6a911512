"""Parse dates and times as leniently as Spark does from strings of JSON without a format, in UTC.

Follows `SparkDateTimeUtils` of Spark 4: ``2020``, ``2020-1-2``, ``2020-01-02T3:4:5.6+01:00``, and more.
"""

from __future__ import annotations

import re
from datetime import date
from zoneinfo import available_timezones

from .json_tokens import Undecided

_CONTROLS = "".join(map(chr, [*range(0x21), 0x7F]))
_DATE = re.compile(
    r"(?P<sign>[+-]?)(?P<year>[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T].*)?)?)?", re.S
)
_TIMESTAMP = re.compile(
    r"(?P<sign>[+-]?)(?P<year>[0-9]{4,6})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?(?P<zone>[^0-9.].*)?)?)?)?)?)?",
    re.S,
)
_TIME_ALONE = re.compile(r"T?[0-9]{1,2}:.*|T[0-9]{1,2}", re.S)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_JAVA_SHORT_IDS = (
    "ACT AET AGT ART AST BET BST CAT CNT CST CTT EAT ECT IET IST JST MIT NET NST PLT PNT PRT PST SST VST EST MST HST"
)
_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1
_FIRST_GREGORIAN = -141_427
"""1582-10-15, in days since 1970-01-01."""


def days(text: str) -> int | None:
    """Return the days since 1970-01-01, or None if it is no date. Raises Undecided."""
    date_days = _date(text.strip(_CONTROLS))
    if date_days is not None and -(2**31) <= date_days < 2**31:
        return date_days
    # "In Spark 1.5.0, we store the data as number of days since epoch in string"
    if re.fullmatch(r"[+-]?[0-9]+", text) and -(2**31) <= int(text) < 2**31:
        if int(text) < _FIRST_GREGORIAN:
            raise Undecided("a date of the Julian calendar, as a number of days")
        return int(text)
    if text.isdecimal() and not text.isascii():
        raise Undecided("a number of days in other digits")
    return _date(text.replace("GMT", "").strip(_CONTROLS))


def micros(text: str) -> int | None:
    """Return the microseconds since 1970-01-01T00:00:00Z, or None if it is no time. Raises Undecided."""
    time_micros = _micros(text.strip(_CONTROLS))
    return _micros(text.replace("GMT", "").strip(_CONTROLS)) if time_micros is None else time_micros


def _date(text: str) -> int | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    days = _days_of(match)
    return None if days is None or not -(2**31) <= days < 2**31 else days


def _micros(text: str) -> int | None:
    if _TIME_ALONE.fullmatch(text):
        raise Undecided("a time of day without a date, which Spark takes for one of today's")
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    zone = match["zone"]
    offset = 0 if zone is None else _offset(zone.strip(_CONTROLS))
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    day = _days_of(match)
    if day is None or offset is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match["fraction"] or "")[:6].ljust(6, "0"))
    total = ((day * 24 + hour) * 60 + minute) * 60 + second - offset
    total = total * 1_000_000 + fraction
    return total if _MIN_LONG <= total <= _MAX_LONG else None


def _days_of(found: re.Match[str]) -> int | None:
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    # the calendar repeats itself after 400 years, and Python's ends at 9999
    cycles, within = divmod(-year if found["sign"] == "-" else year, 400)
    try:
        return date(within + 400, month, day).toordinal() + (cycles - 1) * 146_097 - date(1970, 1, 1).toordinal()
    except ValueError:
        return None


def _offset(zone: str) -> int | None:
    """Return the zone's seconds east of UTC, or None if there is no such zone. Raises Undecided."""
    # Spark does this before it asks Java: +1: becomes +01:, +01:2 becomes +01:02
    zone = re.sub(r"([+-])(\d):", r"\g<1>0\2:", zone, count=1, flags=re.A)
    zone = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", zone, count=1, flags=re.A)
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    for prefix in ("UTC", "GMT", "UT"):
        if zone.startswith((f"{prefix}+", f"{prefix}-")):
            zone = zone.removeprefix(prefix)
            break
    if zone[:1] in ("+", "-"):
        match = _OFFSET.fullmatch(zone)
        if match is None or (len(match[2]) == 1 and match[3]):
            return None
        if match[4] is not None and (zone.count(":") == 1 or len(zone) not in (7, 9)):
            return None
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        size = (hours * 60 + minutes) * 60 + seconds
        if minutes > 59 or seconds > 59 or size > 18 * 3600:
            return None
        return -size if match[1] == "-" else size
    if zone in _JAVA_SHORT_IDS.split() or zone in available_timezones() or zone.startswith("SystemV/"):
        raise Undecided("a time zone by its name, whose offsets are the JVM's to say")
    return None
