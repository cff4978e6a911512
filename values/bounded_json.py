"""Write decoded values as JSON text within a limit: a value of a few bytes may become gigabytes of text."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

DEEPEST = 200


class TooMuchJson(Exception):
    """The JSON text would be longer than the limit."""


class BoundedJson:
    """JSON text that is being written. ``most``: the limit, in characters."""

    def __init__(self, most: int) -> None:
        self._left, self._parts = most, list[str]()

    def put(self, text: str) -> None:
        """Append ``text``. Raises TooMuchJson if it exceeds the limit."""
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchJson
        self._parts.append(text)

    def write(self, value: Any, depth: int = 0) -> None:
        """Append a value: bytes as ``{"base64": …}``, numbers with every digit, other types as text.

        Raises TooMuchJson, and ValueError for a value that is nested too deep.
        """
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST}")
        match value:
            case bool() | None | int() | str():
                self.put(json.dumps(value, ensure_ascii=False))
            case float():
                self.put(json.dumps(value if math.isfinite(value) else str(value)))
            case bytes():
                self.put(f'{{"base64":"{b64encode(value).decode()}"}}')
            case datetime() | date() | time():
                self.put(f'"{value.isoformat()}"')
            case Mapping():
                members = [(json.dumps(str(name), ensure_ascii=False) + ":", each) for name, each in value.items()]
                self._list("{}", members, depth)
            case list() | tuple():
                self._list("[]", [("", each) for each in value], depth)
            case _:  # a decimal, a UUID, …
                self.put(json.dumps(str(value)))

    def _list(self, around: str, members: list[tuple[str, Any]], depth: int) -> None:
        self.put(around[0])
        for nth, (name, each) in enumerate(members):
            self.put(f",{name}" if nth else name)
            self.write(each, depth + 1)
        self.put(around[1])

    def bytes(self) -> bytes:
        return "".join(self._parts).encode("utf-8", "replace")
