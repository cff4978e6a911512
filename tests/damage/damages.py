"""Damages of the objects of a copied segment: each damage is all three objects as a reader finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import orjson

from tests.damage.segments import Objects, Segments, batch_positions
from tierstate.state.object_keys import ObjectKind
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.manifest_json import parse_manifest

LOG, INDEXES, MANIFEST = ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST
FIELDS = {
    "base offset": (0, 8),
    "length": (8, 12),
    "leader epoch": (12, 16),
    "magic": (16, 17),
    "CRC": (17, 21),
    "attributes": (21, 23),
    "last offset delta": (23, 27),
    "timestamps": (27, 43),
    "producer id, epoch, sequence": (43, 57),
    "record count": (57, 61),
    "records": (61, None),
}
"""The fields of a record batch: first byte, and end."""
INDEX_NAMES = {
    IndexKind.OFFSET: "offset index",
    IndexKind.TIME: "time index",
    IndexKind.PRODUCER_SNAPSHOT: "producer snapshot",
    IndexKind.LEADER_EPOCHS: "leader epochs",
    IndexKind.TRANSACTION: "transaction index",
}


@dataclass(frozen=True, slots=True)
class Damage:
    """``object``: the damaged object. ``region``: the damaged part of it. ``how``: the change."""

    object: str
    region: str
    how: str
    objects: Objects
    aim: str = ""
    """The byte, the batch or the field."""

    @property
    def row(self) -> tuple[str, str]:
        """Return the row of the table that counts this damage."""
        return self.object, self.region

    def __str__(self) -> str:
        return ", ".join(word for word in (self.object, self.region, self.how, self.aim) if word)


def damages(segments: Segments) -> Iterator[Damage]:
    """Yield all damages that are possible for these segments. A damage that changes nothing is left out."""
    for damage in (*_log(segments), *_indexes(segments), *_manifest(segments), *_all_three(segments)):
        if damage.objects != segments.whole:
            yield damage


def _with(segments: Segments, kind: ObjectKind, data: bytes | None) -> Objects:
    return {**segments.whole, kind: data}


def _flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def _zeroed(data: bytes, start: int, stop: int) -> bytes:
    return data[:start] + bytes(stop - start) + data[stop:]


def _swapped(data: bytes, one: tuple[int, int], other: tuple[int, int]) -> bytes:
    """Return the data with two adjacent ranges swapped."""
    (a, b), (c, d) = one, other
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _stored(segments: Segments, kind: ObjectKind) -> bytes:
    data = segments.whole[kind]
    assert data is not None
    return data


def _log(segments: Segments) -> Iterator[Damage]:
    yield from _log_bytes(segments)
    if segments.form.as_it_is:
        yield from _batch_fields(segments)
        yield from _batches(segments)
    for how in ("before", "after", "elsewhere", "again", "branch"):
        yield Damage("log", NAMES_OF_OTHERS[how], "swapped", _with(segments, LOG, getattr(segments, how)[LOG]))


NAMES_OF_OTHERS = {
    "before": "object of the segment before",
    "after": "object of the segment behind",
    "elsewhere": "object of another partition, same offsets",
    "again": "object of another attempt, same log",
    "branch": "older object, of a branch that was lost",
}


def _log_bytes(segments: Segments) -> Iterator[Damage]:
    data = _stored(segments, LOG)
    index = parse_manifest(_stored(segments, MANIFEST), source="manifest").chunks
    chunks = [(chunk.stored_start, chunk.stored_stop) for chunk in map(index.chunk, range(index.count))]

    def damage(region: str, how: str, changed: bytes | None, aim: str = "") -> Damage:
        return Damage("log", region, how, _with(segments, LOG, changed), aim)

    for number, (start, stop) in enumerate(chunks):
        for at in (start, (start + stop) // 2, stop - 1):
            region = "chunk" if start < at < stop - 1 else "chunk border"
            yield damage(region, "flipped", _flipped(data, at, 8), f"byte {at - start} of chunk {number}")
        yield damage("chunk", "zeroed", _zeroed(data, start, stop), f"chunk {number}")
        yield damage("chunk", "cut out", data[:start] + data[stop:], f"chunk {number}")
    for number, (one, other) in enumerate(pairwise(chunks)):
        yield damage("chunk", "swapped", _swapped(data, one, other), f"chunks {number} and {number + 1}")
    cuts = {len(data) - 1, 1, len(data) // 2, chunks[-1][0], chunks[2][1]}
    for at in sorted(cuts):
        yield damage("end of the object", "cut", data[:at], f"at {at}")
    yield damage("end of the object", "longer", data + data[: chunks[0][1]])
    yield damage("whole object", "emptied", b"")
    yield damage("whole object", "missing", None)


def _batch_fields(segments: Segments) -> Iterator[Damage]:
    data = _stored(segments, LOG)
    borders = [*pairwise([*batch_positions(data), len(data)])]
    for number in (0, len(borders) // 2, len(borders) - 1):
        begin, end = borders[number]
        following = borders[(number + 1) % len(borders)][0]
        for field, (first, last) in FIELDS.items():
            start, stop = begin + first, end if last is None else begin + last

            def damage(how: str, changed: bytes, aim: str = "", field: str = field, number: int = number) -> Damage:
                return Damage("log", field, how, _with(segments, LOG, changed), f"batch {number}{aim}")

            yield damage("flipped", _flipped(data, start, 64), ", first byte")
            yield damage("flipped", _flipped(data, (start + stop) // 2, 4), ", a byte within")
            yield damage("flipped", _flipped(data, stop - 1, 1), ", last byte")
            yield damage("zeroed", _zeroed(data, start, stop))
            if last is not None:
                field_bytes = data[following + first : following + last]
                yield damage("swapped", data[:start] + field_bytes + data[stop:], ", that of the next one")


def _batches(segments: Segments) -> Iterator[Damage]:
    """Yield damages of whole batches, each of which is valid by its own CRC."""
    data = _stored(segments, LOG)
    borders = [*pairwise([*batch_positions(data), len(data)])]

    def damage(region: str, how: str, changed: bytes, aim: str) -> Damage:
        return Damage("log", region, how, _with(segments, LOG, changed), aim)

    other = segments.elsewhere[LOG]
    assert other is not None
    for number in (0, len(borders) // 2, len(borders) - 1):
        start, stop = borders[number]
        pasted = data[:start] + other[start:stop] + data[stop:]
        yield damage("one whole batch", "pasted from another partition", pasted, f"batch {number}")
        yield damage("one whole batch", "cut out", data[:start] + data[stop:], f"batch {number}")
        yield damage("one whole batch", "twice", data[:stop] + data[start:stop] + data[stop:], f"batch {number}")
    equal = [(one, two) for one, two in combinations(borders, 2) if one[1] - one[0] == two[1] - two[0]]
    for one, two in (equal[0], equal[-1]):
        yield damage("one whole batch", "swapped", _swapped(data, one, two), f"at {one[0]} and {two[0]}")
    # of the same size as the whole: only an offset, or a CRC over all, tells
    one, two = equal[0]
    yield damage("one whole batch", "in another's place", data[: two[0]] + data[one[0] : one[1]] + data[two[1] :], "")


def _indexes(segments: Segments) -> Iterator[Damage]:
    data = _stored(segments, INDEXES)
    spans = parse_manifest(_stored(segments, MANIFEST), source="manifest").indexes
    for kind, span in spans.items():
        if span is None or not span.size:
            continue
        start, stop = span.position, span.position + span.size

        def damage(how: str, changed: bytes, aim: str = "", kind: IndexKind = kind) -> Damage:
            return Damage("indexes", INDEX_NAMES[kind], how, _with(segments, INDEXES, changed), aim)

        for at in sorted({start, (start + stop) // 2, stop - 1}):
            yield damage("flipped", _flipped(data, at, 8), f"byte {at - start}")
        yield damage("zeroed", _zeroed(data, start, stop))
        yield damage("cut", data[:start] + data[start + 1 :])
    for how, name in NAMES_OF_OTHERS.items():
        yield Damage("indexes", name, "swapped", _with(segments, INDEXES, getattr(segments, how)[INDEXES]))
    yield Damage("indexes", "whole object", "cut", _with(segments, INDEXES, data[:-1]))
    yield Damage("indexes", "whole object", "emptied", _with(segments, INDEXES, b""))
    yield Damage("indexes", "whole object", "missing", _with(segments, INDEXES, None))


Names = tuple[str | int, ...]


def _manifest(segments: Segments) -> Iterator[Damage]:
    data = _stored(segments, MANIFEST)
    for path, value in leaves(orjson.loads(data)):
        name, aim = region_of(path), ".".join(map(str, path))
        for how, other in (("flipped", _other(value)), ("zeroed", _nothing(value))):
            if other != value:
                yield Damage("manifest", name, how, _with(segments, MANIFEST, _changed(data, path, other)), aim)
        yield Damage("manifest", name, "cut out", _with(segments, MANIFEST, _changed(data, path, ...)), aim)
    for key in re.findall(rb'"([A-Za-z]{4,})":', data):
        at = data.index(b'"%s":' % key) + 3
        changed = _flipped(data, at, 8)
        yield Damage("manifest", "name of a field", "flipped", _with(segments, MANIFEST, changed), key.decode())
    for how, name in NAMES_OF_OTHERS.items():
        yield Damage("manifest", name, "swapped", _with(segments, MANIFEST, getattr(segments, how)[MANIFEST]))
    whole = _with(segments, MANIFEST, data[: len(data) // 2])
    yield Damage("manifest", "whole object", "cut", whole)
    yield Damage("manifest", "whole object", "emptied", _with(segments, MANIFEST, b""))
    yield Damage("manifest", "whole object", "zeroed", _with(segments, MANIFEST, bytes(len(data))))
    yield Damage("manifest", "whole object", "missing", _with(segments, MANIFEST, None))


def leaves(value: Any, path: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Yield path and value of every leaf of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key), item


def region_of(path: Names) -> str:
    """Return the row of the table: the field's name, without numbers of a list and epochs."""
    names = [str(name) for name in path if isinstance(name, str) and not name.isdigit()]
    if names[0] == "remoteLogSegmentMetadata":
        return ".".join(names[1:4] if names[1:3] == ["tierstate", "descriptor"] else names[1:])
    return ".".join(names)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ 1
    if isinstance(value, str) and value:
        at = len(value) // 2
        return value[:at] + ("B" if value[at] != "B" else "A") + value[at + 1 :]
    return 1 if value is None else value


def _nothing(value: Any) -> Any:
    return {int: 0, str: "", bool: False}.get(type(value))


def _changed(data: bytes, path: Names, value: Any) -> bytes:
    """Return the manifest with another value; ``...`` removes it. An encrypted one keeps the blanks at its end."""
    document = orjson.loads(data)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return orjson.dumps(document) + data[len(data.rstrip()) :]


def _all_three(segments: Segments) -> Iterator[Damage]:
    for how, name in NAMES_OF_OTHERS.items():
        yield Damage("all three", name.replace("object ", "objects "), "swapped", getattr(segments, how))
    yield Damage("all three", "whole objects", "missing", dict.fromkeys(segments.whole))
