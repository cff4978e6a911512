"""Sizes and durations as people write them: ``4MiB``, ``15m``. In the code, bytes are int and seconds are float."""

from __future__ import annotations

import re

SIZE_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
SECOND_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "y": 365 * 86_400.0}

_SIZES = {name.lower(): factor for name, factor in SIZE_UNITS.items()}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d|y))+", re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|y)", re.ASCII)
_MOST = 2**63 - 1


def parse_size(value: object) -> int:
    """Return the bytes of ``"4MiB"``, ``"10 MB"``, ``"0"`` or a whole number. Raises ValueError otherwise."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    match = _NUMBER.fullmatch(text)
    factor = _SIZES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"not a size: {value!r}; write a number of bytes or a unit, as 4MiB (units: B KiB MiB GiB TiB)"
        )
    # Whole numbers stay exact: a float holds no more than 2^53 bytes.
    size = int(match[1]) * factor if "." not in match[1] else int(float(match[1]) * factor)
    if size > _MOST:
        raise ValueError(f"not a size: {value!r} is above 2^63")
    return size


def parse_duration(value: object) -> float:
    """Return the seconds of ``"15m"``, ``"1h30m"``, ``"250ms"``; a number is seconds. Raises ValueError otherwise.

    A text without a unit is refused, except 0: it does not show whether 15 means seconds or Kafka's milliseconds.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST:
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    if _DURATION.fullmatch(text):
        return sum(float(number) * SECOND_UNITS[unit] for number, unit in _PART.findall(text))
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        if float(text):
            raise ValueError(
                f"a duration without a unit: {text}; write {text}s for seconds, {text}ms, {text}m, {text}h or {text}d"
            )
        return 0.0
    raise ValueError(f"not a duration: {value!r}; write a number with a unit, as 15m (units: ms s m h d y)")


def show_size(size: int) -> str:
    """Return the shortest text that means exactly ``size`` bytes: ``4MiB``, ``1000B``, ``0``."""
    if size == 0:
        return "0"
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if size % SIZE_UNITS[name] == 0:
            return f"{size // SIZE_UNITS[name]}{name}"
    return f"{size}B"


def show_duration(seconds: float) -> str:
    """Return the shortest text that means exactly this many seconds: ``7d``, ``90s``, ``0.25s``."""
    if seconds == 0:
        return "0s"
    for name in ("d", "h", "m"):
        if seconds % SECOND_UNITS[name] == 0:
            return f"{int(seconds // SECOND_UNITS[name])}{name}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 topic``, ``2,000 topics``; ``many`` is the plural of words that do not take an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
