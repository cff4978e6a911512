"""Rotates keys: wraps the data key in a manifest again, under the active key, and changes nothing else.

Only the value of ``encryption.dataKey`` is replaced, and in a manifest of tierstate also that of ``key_fingerprint``.
All other bytes of any writer's manifest stay as they are. The chunks, their data key and AAD do not change, so readers
that still have the old manifest continue. A manifest of tierstate keeps its length, because its fact and its descriptor
state that length. Fact and descriptor still name the key with which the segment was written: only the manifest's
``dataKey`` names the key that unwraps it now.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from ...state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ...state.object_keys import ObjectKind, may_be_of
from ..object_store import ObjectReader, ObjectStore
from .encryption import open_data_key
from .in_order import in_order
from .keyring import KeyRing
from .manifest import SegmentManifest
from .manifest_json import MAX_MANIFEST_BYTES, format_manifest, parse_manifest

A = TypeVar("A")
AT_ONCE = 16
ATTEMPTS = 3
"""Attempts to replace a manifest that another process changes at the same time."""
_TEXT = rb'"\s*:\s*)("(?:[^"\\]|\\.)*")'
_DATA_KEY, _FINGERPRINT = re.compile(rb'("dataKey' + _TEXT), re.compile(rb'("key_fingerprint' + _TEXT)
_SPACE = b" \t\r\n"


class Outcome(StrEnum):
    """The result for one manifest, or the expected result without ``execute``."""

    ROTATED = "rotated"
    ACTIVE = "under the active key already"
    OTHER = "under another key than --from"
    NEWER = "under a newer key than the active one"
    PLAIN = "not encrypted"
    LOCKED = "no private key"
    REFUSED = "refused"
    CORRUPT = "corrupt"
    GONE = "deleted meanwhile"


@dataclass(frozen=True, slots=True)
class Rotated:
    """The result for one manifest. ``key_id`` wrapped it before (None: unencrypted). ``problem``: why it stays."""

    manifest_key: str
    outcome: Outcome
    key_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """Selects the manifests of a topic, or of one partition of it, or all; with ``from_id``, only those under that key.

    A manifest can return to an older active key only with ``from_id``. Without ``execute``, nothing is written.
    """

    topic: str | None = None
    partition: int | None = None
    from_id: str | None = None
    execute: bool = False

    def covers(self, manifest: SegmentManifest) -> bool:
        """Return whether the manifest is selected. A manifest without a topic is selected only if all topics are."""
        about = manifest.metadata
        if self.topic is None or about is None:
            return self.topic is None
        return about.topic == self.topic and self.partition in (None, about.partition.partition)


def rotate_all(store: ObjectStore, keys: KeyRing, rotation: Rotation) -> Iterator[Rotated]:
    """Rotate every selected manifest in the store, under any key prefix, in key order. Yield the results.

    A rotation can be stopped at any time and started again: rotated manifests are skipped. Memory: `AT_ONCE` results.
    Raises Unavailable and AccessDenied, and InvalidRequest if the ring has no private key of the active key.
    """
    if not keys.opens(keys.active):
        raise InvalidRequest(
            "rotating needs the private key of the active key too: it checks its own work", key_id=keys.active
        )
    manifest_keys = (each.key for each in store.list() if each.key.endswith(ObjectKind.MANIFEST))
    selected_keys = (key for key in manifest_keys if may_be_of(key, rotation.topic, rotation.partition))
    return _looked(selected_keys, lambda key: rotate_one(store, key, keys, rotation))


def rotate_one(store: ObjectStore, key: str, keys: KeyRing, rotation: Rotation) -> Rotated | None:
    """Rotate one manifest. Returns None if it is not selected. Raises Unavailable and AccessDenied of the store."""
    key_id = None
    try:
        for _ in range(ATTEMPTS):
            manifest = store.get(key, MAX_MANIFEST_BYTES)
            parsed = parse_manifest(manifest, source=key)
            key_id = parsed.encryption.key_id if parsed.encryption else None
            if not rotation.covers(parsed):
                return None
            stays = _stays(key_id, keys, rotation)
            if stays is not None:
                return Rotated(key, stays, key_id)
            changed = rewrapped(manifest, keys, source=key)
            # The commit point: from here on, only the new key unwraps the data key.
            if changed is None or not rotation.execute or store.replace_if_same(key, changed, manifest):
                return Rotated(key, Outcome.ROTATED, key_id)
    except ObjectNotFound:
        return Rotated(key, Outcome.GONE, key_id)
    except CorruptData as error:
        return Rotated(key, Outcome.CORRUPT, key_id, str(error))
    except InvalidRequest as error:
        return Rotated(key, Outcome.REFUSED, key_id, str(error))
    return Rotated(key, Outcome.REFUSED, key_id, "somebody else goes on changing it")


def _stays(key_id: str | None, keys: KeyRing, rotation: Rotation) -> Outcome | None:
    if key_id is None:
        return Outcome.PLAIN
    if key_id == keys.active:
        return Outcome.ACTIVE
    if rotation.from_id not in (None, key_id):
        return Outcome.OTHER
    if rotation.from_id is None and keys.is_newer(key_id):
        return Outcome.NEWER
    return None if keys.opens(key_id) else Outcome.LOCKED


def count_by_key(store: ObjectReader) -> Iterator[tuple[str, str | None]]:
    """Yield (manifest's object key, wrapping key's id or None if unencrypted) for every readable manifest."""
    manifest_keys = (each.key for each in store.list() if each.key.endswith(ObjectKind.MANIFEST))

    def look(key: str) -> tuple[str, str | None] | None:
        try:
            encryption = parse_manifest(store.get(key, MAX_MANIFEST_BYTES), source=key).encryption
        except (CorruptData, InvalidRequest, ObjectNotFound):
            return None
        return key, encryption.key_id if encryption else None

    return _looked(manifest_keys, look)


def _looked(keys: Iterable[str], look: Callable[[str], A | None]) -> Iterator[A]:
    """Yield the results of ``look`` that are not None, in the order of ``keys``. `AT_ONCE` calls run at a time."""

    def work(key: str, _: threading.Event) -> A | None:
        return look(key)

    return (each for each in in_order((partial(work, key) for key in keys), AT_ONCE) if each is not None)


def rewrapped(manifest: bytes, keys: KeyRing, *, source: str) -> bytes | None:
    """Return the manifest under the active key. Returns None if it is not encrypted, or already under that key.

    Raises CorruptData that names ``source``. Raises InvalidRequest if a private key is missing: both are needed,
    because the result is unwrapped again as a check.
    """
    parsed = parse_manifest(manifest, source=source)
    if parsed.encryption is None or parsed.encryption.key_id == keys.active:
        return None
    data_key = open_data_key(parsed.encryption, keys, source=source)
    key_id, wrapped, fingerprint = keys.wrap(data_key)
    old_fingerprint = parsed.encryption.key_fingerprint
    fresh = replace(
        parsed.encryption,
        key_id=key_id,
        wrapped_key=wrapped,
        key_fingerprint=None if old_fingerprint is None else fingerprint,
    )
    if open_data_key(fresh, keys, source=source) != data_key:
        raise CorruptData("the data key does not come back as it was wrapped", key_id=key_id)
    expected = replace(parsed, encryption=fresh)
    changed = _exchanged(manifest, _DATA_KEY, _text(manifest), _text(format_manifest(expected)), source)
    if old_fingerprint is not None:
        changed = _exchanged(changed, _FINGERPRINT, old_fingerprint, fingerprint, source)
    if parsed.tierstate is not None:
        changed = _as_long(changed, len(manifest), source)
    if parse_manifest(changed, source=source) != expected:
        raise InvalidRequest("the manifest cannot be changed without changing more of it", file=source)
    return changed


def _exchanged(manifest: bytes, field: re.Pattern[bytes], old: str, new: str, source: str) -> bytes:
    matches = [match for match in field.finditer(manifest) if json.loads(match[2]) == old]
    if len(matches) != 1:
        raise CorruptData("the manifest does not name its key once", file=source, times=len(matches))
    start, stop = matches[0].span(2)
    return manifest[:start] + json.dumps(new, ensure_ascii=False).encode() + manifest[stop:]


def _as_long(changed: bytes, size: int, source: str) -> bytes:
    bare = changed.rstrip(_SPACE)
    if len(bare) > size:
        raise InvalidRequest("the new key does not fit into the manifest", file=source, bytes=len(bare), room=size)
    return bare.ljust(size)


def _text(manifest: bytes) -> str:
    return str(json.loads(manifest)["encryption"]["dataKey"])
