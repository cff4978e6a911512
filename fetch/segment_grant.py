"""Access to one copied segment without credentials for the bucket: URLs that expire, and its data key if encrypted."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..state.errors import CorruptData
from ..state.object_keys import ObjectKind

NAMES: Mapping[str, ObjectKind] = {
    "manifest": ObjectKind.MANIFEST,
    "log": ObjectKind.LOG,
    "indexes": ObjectKind.INDEXES,
}
"""The names of the three objects, in answers and paths."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """``wrapped``: the key as in the manifest; ``plain``: the key that decrypts this one segment."""

    wrapped: bytes
    plain: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentGrant:
    """``expires_in_s``: seconds from the answer. ``urls``: absolute, or a path of the gateway itself."""

    expires_in_s: float
    urls: Mapping[ObjectKind, str] = field(repr=False)
    data_key: DataKey | None = None

    def as_json(self) -> dict[str, Any]:
        key = self.data_key
        text = None if key is None else {"wrapped": _text(key.wrapped), "plain": _text(key.plain)}
        objects = {name: self.urls[kind] for name, kind in NAMES.items()}
        return {"expires_in_seconds": self.expires_in_s, "urls": objects, "data_key": text}


def grant_from(document: Any, source: str) -> SegmentGrant:
    """Return a grant from its JSON. Raises CorruptData naming ``source``."""
    try:
        key = document["data_key"]
        urls = {kind: str(document["urls"][name]) for name, kind in NAMES.items()}
        data_key = None if key is None else DataKey(b64decode(key["wrapped"]), b64decode(key["plain"]))
        return SegmentGrant(float(document["expires_in_seconds"]), urls, data_key)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData("a segment's grant cannot be read", url=source, reason=type(error).__name__) from error


def _text(data: bytes) -> str:
    return b64encode(data).decode()
