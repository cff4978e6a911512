"""Read many Avro values to one Arrow array with compiled code (`log/avro_kernels.py`), where it reads as fastavro does.

Each writer schema is compiled once, together with the reader schema, to a program that fills the columns of the reader
schema. So one pass reads values of several writer schemas, and resolves them. The following is not read here:

    a writer schema that cannot be resolved in every case, or whose lists may have items of no bytes
    a value that the kernel rejects; most are corrupt

Memory: 17 bytes for each field of each value, one such cell for each byte of a value if the field is in a list, of
which only used pages count, and the resulting columns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro import schemaless_reader

from ..log import avro_kernels as k
from ..state.errors import InvalidRequest
from .avro_branches import NotResolved, branch
from .avro_schemas import parsed
from .avro_tree import Tree, text_of, tree_of
from .avro_type import shaping
from .typed_column import NOT_OF_TYPE

REJECTED, NULL = 0, 1
"""Entries of the values that are not read, and of null values."""
MOST_ITEMS = 1 << 24
"""A value is rejected if a field in a list would have more cells."""
MOST_TYPES = 100_000
"""A larger schema is not compiled: one of few bytes may name types within types, twice each."""
_LONGS, _INTS = (-(1 << 63), (1 << 63) - 1), (-(1 << 31), (1 << 31) - 1)
_NULL, _UNION = {"type": "null"}, {"type": "union"}
_Words = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Node:
    """A node of the reader schema. ``members``: its types, without null. ``children``: of a map, its key and value, and
    of a union of several types a node of each.
    """

    slot: int
    kind: pa.DataType
    nullable: bool
    members: list[dict[str, Any]]
    within_list: bool
    children: list[_Node] = field(default_factory=list)

    @property
    def is_union(self) -> bool:
        return len(self.members) > 1 and pa.types.is_struct(self.kind)

    @property
    def symbols(self) -> list[str] | None:
        return None if self.is_union else self.members[0].get("symbols")


class AvroColumns:
    """Reads values of one reader schema. Writer schemas are added while it is in use."""

    def __init__(self, text: str, kind: pa.DataType) -> None:
        self._nodes: list[_Node] = []
        self._root = self._node(tree_of([text], "the schema"), kind, False)
        self._steps: list[list[int]] = [[k.REJECT, -1, 0, 0, 0]]
        self._table: list[int] = []
        self._kept: list[npt.NDArray[np.uint8]] = []
        self._depth, self._types = 1, 0
        self._null(self._root)
        self._add(k.END)
        self._program, self._words = self._arrays()

    def entry(self, text: str) -> int:
        """Return the entry of the values of a writer schema, or `REJECTED` if they are not read here."""
        steps, self._types = len(self._steps), 0
        try:
            self._value(tree_of([text], "the schema"), self._root, 1)
            if self._types > MOST_TYPES:  # a union left some out
                raise NotResolved
        except (NotResolved, InvalidRequest):
            del self._steps[steps:]
            return REJECTED
        self._add(k.END)
        self._program, self._words = self._arrays()
        return steps

    def read(
        self, data: npt.NDArray[np.uint8], starts: _Words, ends: _Words, entries: _Words
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the column, and which values are rejected: null there. A null value begins where it ends."""
        count, size = len(starts), int((ends - starts).sum())
        room = np.array([min(size, MOST_ITEMS) if node.within_list else count for node in self._nodes], np.int64)
        bases = np.cumsum(room) - room
        total, counts = int(room.sum()), np.zeros(len(room), np.int64)
        first, second, marks = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.uint8)
        rejected = np.zeros(count, np.uint8)
        fixed = data, starts, ends, entries, self._program, self._words, bases, room, self._depth
        k.read(*fixed, counts, first, first.view(np.float64), second, marks, rejected)
        cells = [slice(base, base + used) for base, used in zip(bases.tolist(), counts.tolist(), strict=True)]
        return _Cells(first, second, marks, cells).array(self._root), rejected.view(np.bool_)

    @property
    def has_unions(self) -> bool:
        """Return whether the column has structs of branches, which fastavro cannot tell apart."""
        return any(node.is_union for node in self._nodes)

    def _node(self, tree: Tree, kind: pa.DataType, within_list: bool) -> _Node:
        members = tree if isinstance(tree, list) else [tree]
        # a union within a union, which Avro forbids, is read one by one
        some = [each if isinstance(each, dict) else _UNION for each in members if each != _NULL]
        node = _Node(len(self._nodes), kind, len(some) < len(members), some, within_list)
        self._nodes.append(node)
        if node.is_union:
            node.children = [self._node(each, one.type, within_list) for each, one in zip(some, kind, strict=True)]
            return node
        only = some[0]
        match only["type"]:
            case "record":
                fields = zip(only["fields"], kind, strict=True)
                node.children = [self._node(each["type"], column.type, within_list) for each, column in fields]
            case "array":
                node.children = [self._node(only["items"], kind.value_type, True)]
            case "map":
                node.children = [self._node({"type": "string"}, kind.key_type, True)]
                node.children.append(self._node(only["values"], kind.item_type, True))
        return node

    def _arrays(self) -> tuple[npt.NDArray[np.int64], _Words]:
        return np.array(self._steps, np.int64), np.array([*self._table, 0, 0], np.int64)

    def _add(self, step: int, node: _Node | None = None, *arguments: int) -> None:
        self._steps.append([step, -1 if node is None else node.slot, *arguments, 0, 0, 0][:5])

    def _constants(self, words: list[int]) -> int:
        self._table += words
        return len(self._table) - len(words)

    def _null(self, node: _Node) -> None:
        if pa.types.is_list(node.kind) or pa.types.is_map(node.kind):
            self._add(k.NO_LIST, node, node.children[0].slot, 0)
            return
        self._add(k.NULL, node)
        for child in node.children:
            self._null(child)

    def _value(self, tree: Tree, node: _Node | None, depth: int) -> None:
        """Add the steps for a value of a writer schema. ``node`` None: it is not kept."""
        self._depth, self._types = max(self._depth, depth), self._types + 1
        if self._types > MOST_TYPES:
            raise NotResolved
        if isinstance(tree, list):
            self._union(tree, node, depth)
        elif tree == _NULL:
            if node is not None:
                if not node.nullable:
                    raise NotResolved
                self._null(node)
        elif node is None:
            self._typed(tree, None, tree, depth)
        else:
            at = branch(tree, node.members)
            if not node.is_union:
                return self._typed(tree, node, node.members[at], depth)
            self._add(k.STRUCT, node)
            for other, child in enumerate(node.children):
                if other != at:
                    self._null(child)
            self._typed(tree, node.children[at], node.members[at], depth)

    def _union(self, members: list[dict[str, Any]], node: _Node | None, depth: int) -> None:
        table = self._constants([0] * len(members))
        self._add(k.UNION, None, len(members), table)
        ends = []
        for at, member in enumerate(members):
            self._table[table + at] = first = len(self._steps)
            try:
                self._value(member, node, depth)
            except NotResolved:
                self._table[table + at] = REJECTED
                del self._steps[first:]
                continue
            ends.append(len(self._steps))
            self._add(k.JUMP)
        for end in ends:
            self._steps[end][2] = len(self._steps)

    def _typed(self, tree: dict[str, Any], node: _Node | None, to: dict[str, Any], depth: int) -> None:
        kind = None if node is None else node.kind
        match tree["type"]:
            case "int" | "long" if kind is not None and pa.types.is_floating(kind):
                self._add(k.REAL_OF_LONG, node)
            case "int" | "long":
                in_ms = kind is not None and pa.types.is_timestamp(kind) and str(to["logicalType"]).endswith("-millis")
                factor = 1000 if in_ms else 1
                low, high = _INTS if kind in (pa.int32(), pa.date32()) else _LONGS
                self._add(k.LONG, node, -(-low // factor), high // factor, factor)
            case "float":
                self._add(k.FLOAT, node)
            case "double":
                self._add(k.DOUBLE, node)
            case "boolean":
                self._add(k.BOOLEAN, node)
            case "bytes" | "string" | "fixed" as name:
                size = tree["size"] if name == "fixed" else -1
                if kind is not None and pa.types.is_decimal(kind):
                    if name == "string":
                        raise NotResolved
                    limit = self._constants(_words(10**kind.precision))
                    self._add(k.DECIMAL, node, size, limit)
                else:
                    self._add(k.TEXT, node, size, int("string" in (name, to["type"]) and node is not None))
            case "enum":
                self._enum(tree, node, to)
            case "array" | "map" as name:
                self._list(tree, name, node, depth)
            case "record":
                self._record(tree, node, to, depth)
            case _:
                raise NotResolved

    def _enum(self, tree: dict[str, Any], node: _Node | None, to: dict[str, Any]) -> None:
        if node is None:
            self._add(k.LONG, None)
            return
        places = {symbol: at for at, symbol in enumerate(to["symbols"])}
        other = places.get(to.get("default"), -1)
        table = self._constants([places.get(symbol, other) for symbol in tree["symbols"]])
        self._add(k.ENUM, node, len(tree["symbols"]), table)

    def _list(self, tree: dict[str, Any], name: str, node: _Node | None, depth: int) -> None:
        if name == "array" and _may_be_empty(tree["items"]):
            raise NotResolved
        children = node.children if node is not None else [None, None]
        elements = -1 if children[0] is None else children[0].slot
        begin = len(self._steps)
        self._add(k.LIST, node, elements)
        if name == "map":
            self._add(k.TEXT, children[0], -1, int(node is not None))
            if node is not None:
                self._add(k.DISTINCT, children[0])
        self._value(tree["items" if name == "array" else "values"], children[-1], depth + 1)
        self._steps[begin][3] = len(self._steps)
        self._add(k.MORE, node, elements, begin + 1)

    def _record(self, tree: dict[str, Any], node: _Node | None, to: dict[str, Any], depth: int) -> None:
        if node is None:
            for each in tree["fields"]:
                self._value(each["type"], None, depth)
            return
        self._add(k.STRUCT, node)
        left = {each["name"]: (each, child) for each, child in zip(to["fields"], node.children, strict=True)}
        aliases = {alias: each["name"] for each in to["fields"] for alias in each.get("aliases", ())}
        written = [each["name"] if each["name"] in left else aliases.get(each["name"]) for each in tree["fields"]]
        kept = [name for name in written if name is not None]
        if len(set(kept)) < len(kept):
            raise NotResolved
        for each, name in zip(tree["fields"], written, strict=True):
            self._value(each["type"], None if name is None else left.pop(name)[1], depth)
        for each, child in left.values():
            if "default" not in each:
                raise NotResolved
            self._constant(child, _default(each))

    def _constant(self, node: _Node, value: Any) -> None:
        """Add the steps for a default. ``value`` is as for Arrow."""
        if value is None:
            self._null(node)
        elif node.is_union:  # a default has the first type
            self._add(k.STRUCT, node)
            self._constant(node.children[0], value)
            for child in node.children[1:]:
                self._null(child)
        elif pa.types.is_struct(node.kind):
            self._add(k.STRUCT, node)
            for child, column in zip(node.children, node.kind, strict=True):
                self._constant(child, value[column.name])
        elif node.children:
            if value:
                raise NotResolved
            self._add(k.NO_LIST, node, node.children[0].slot, 1)
        else:
            self._add(k.CONSTANT, node, self._constants(self._cell(node, value)))

    def _cell(self, node: _Node, value: Any) -> list[int]:
        """Return the two words of a default. Raises NotResolved if it is not of its type."""
        try:
            array = pa.array([value], node.kind)
        except NOT_OF_TYPE as error:
            raise NotResolved from error
        if node.symbols is not None:
            return [node.symbols.index(value), 0]
        if pa.types.is_decimal(node.kind):
            return list(np.frombuffer(array.buffers()[1], np.int64)[:2].tolist())
        if pa.types.is_floating(node.kind):
            return [struct.unpack("<q", struct.pack("<d", value))[0], 0]
        if isinstance(value, str | bytes):
            raw = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
            self._kept.append(raw)
            return [raw.ctypes.data, len(raw)]
        return [int(value), 0]


def _default(field: dict[str, Any]) -> Any:
    """Return the default of a reader's field, as for Arrow."""
    writer, reader = (text_of({"type": "record", "name": "R", "fields": fields}) for fields in ([], [field]))
    read: Any = schemaless_reader(BytesIO(), parsed(writer, "the schema"), parsed(reader, "the schema"))
    return shaping(reader)(read)[field["name"]]


def _may_be_empty(tree: Tree) -> bool:
    """Return whether a value may have no bytes."""
    if isinstance(tree, list):
        return False
    match tree["type"]:
        case "record":
            return all(_may_be_empty(each["type"]) for each in tree["fields"])
        case "fixed":
            return bool(tree["size"] == 0)
    return tree == _NULL


def _words(number: int) -> list[int]:
    """Return the low and the high word of a number of 128 bits."""
    return list(struct.unpack("<qq", (number % (1 << 128)).to_bytes(16, "little")))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The kernel's result, as Arrow arrays. ``cells``: those in use, for each slot."""

    first: _Words
    second: _Words
    marks: npt.NDArray[np.uint8]
    cells: list[slice]

    def array(self, node: _Node) -> pa.Array:
        first, marks = self.first[self.cells[node.slot]], self.marks[self.cells[node.slot]]
        count, kind = len(first), node.kind
        nulls = count - int(np.count_nonzero(marks))
        valid = pa.py_buffer(np.packbits(marks, bitorder="little")) if nulls else None
        made = partial(pa.Array.from_buffers, kind, count, null_count=nulls)
        if node.symbols is not None:
            symbols = pa.array(node.symbols, kind)
            return symbols.take(pa.Array.from_buffers(pa.int64(), count, [valid, pa.py_buffer(first.copy())]))
        if pa.types.is_struct(kind):
            return made([valid], children=[self.array(child) for child in node.children])
        if node.children:
            children = [self.array(child) for child in node.children]
            if pa.types.is_map(kind):
                entries = pa.struct([kind.key_field, kind.item_field])
                children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
            return made([valid, _offsets(first)], children=children)
        return made([valid, *self._values(node, kind, first)])

    def _values(self, node: _Node, kind: pa.DataType, first: _Words) -> list[pa.Buffer]:
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            sizes = self.second[self.cells[node.slot]]
            ends = np.cumsum(sizes)
            data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
            k.gather(first, sizes, data)
            return [_offsets(ends), pa.py_buffer(data)]
        if pa.types.is_boolean(kind):
            return [pa.py_buffer(np.packbits(first.view(np.uint8)[::8], bitorder="little"))]
        if pa.types.is_decimal(kind):
            return [pa.py_buffer(np.column_stack((first, self.second[self.cells[node.slot]])))]
        if pa.types.is_floating(kind):
            return [pa.py_buffer(first.view(np.float64).astype(kind.to_pandas_dtype()))]
        return [pa.py_buffer(first.astype(np.int32 if kind.bit_width == 32 else np.int64))]


def _offsets(ends: _Words) -> pa.Buffer:
    """Return Arrow's offsets. Raises OverflowError if there are more than 2^31 bytes or elements."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    if len(ends) and ends[-1] >= 1 << 31:
        raise OverflowError("a column of more than 2 GiB")
    offsets[1:] = ends
    return pa.py_buffer(offsets)
