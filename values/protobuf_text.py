"""Decode Protobuf values to JSON text. A value begins with the path of its message type in the schema.

    number of indexes, indexes    zigzag varints; 1, 0 is the first type within the second; the number 0 means index 0

The registry returns the schema, and each schema that it imports, as a serialized FileDescriptorProto. The protobuf
library has Google's own schemas (``google/protobuf/timestamp.proto``, …).
"""

from __future__ import annotations

import importlib
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from ..state.errors import CorruptData
from .bounded_json import BoundedJson
from .registered_schemas import Decoder
from .schema_registry import RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

MOST_IMPORTS = 64
MOST_INDEXES = 32
_OWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in "any api duration empty field_mask source_context struct timestamp type wrappers descriptor".split()
}


def protobuf_decoder(registry: SchemaRegistry, id: int) -> Decoder:
    """Return a decoder. Raises CorruptData for an unusable Protobuf schema, and as `SchemaRegistry.schema`."""
    from google.protobuf import descriptor_pool, json_format, message_factory

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    size = 0

    def add(schema: RegisteredSchema, name: str) -> FileDescriptorProto:
        nonlocal size
        if len(added) >= MOST_IMPORTS:
            raise CorruptData(f"a schema imports more than {MOST_IMPORTS} others")
        added.add(name)
        for reference in schema.references:
            if reference.name not in added:
                add(registry.referenced(reference, serialized=True), reference.name)
        proto = _file(schema.text)
        proto.name = name
        for needed in proto.dependency:
            if needed in _OWN and needed not in added:
                _add_own(pool, needed, added)
        size += len(schema.text)
        pool.Add(proto)
        return proto

    root = f"schema-{id}.proto"
    try:
        file = add(registry.schema(id, serialized=True), root)
        pool.FindFileByName(root)
    except (TypeError, KeyError) as error:
        raise CorruptData(f"the protobuf schema cannot be used: {str(error)[:200]}") from error

    def write(data: bytes, into: BoundedJson) -> None:
        name, at = _named(data, file)
        message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(data[at:])
        into.write(json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool))

    return Decoder("PROTOBUF", size, write)


def _file(text: str) -> FileDescriptorProto:
    from google.protobuf import descriptor_pb2, message

    try:
        proto: FileDescriptorProto = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, message.DecodeError) as error:
        raise CorruptData("the registry does not give the protobuf schema serialized") from error
    return proto


def _add_own(pool: Any, name: str, added: set[str]) -> None:
    """Add one of the library's own schemas, and those that it imports."""
    from google.protobuf import descriptor_pb2

    added.add(name)
    proto = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(_OWN[name]).DESCRIPTOR.CopyToProto(proto)
    for needed in proto.dependency:
        if needed not in added:
            _add_own(pool, needed, added)
    pool.Add(proto)


def _named(data: bytes, file: FileDescriptorProto) -> tuple[str, int]:
    """Return the full name of the message type, and the position at which the message begins."""
    count, at = _varint(data, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise CorruptData("the message's place in its schema cannot be read")
    indexes = [] if count else [0]
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    messages, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise CorruptData("the schema has no message in this place")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for nth, byte in enumerate(data[at : at + 5]):
        value |= (byte & 127) << (7 * nth)
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at + nth + 1
    raise CorruptData("the message's place in its schema cannot be read")
