"""Write one record as a line of JSON with orjson. `json_lines.py` writes the same bytes for many records."""

from __future__ import annotations

from base64 import b64encode
from enum import StrEnum

import orjson

from .record_parser import Record


class Encoding(StrEnum):
    """The form of bytes in JSON: ``utf8`` writes text if they are valid UTF-8, else ``{"base64": …}``."""

    UTF8 = "utf8"
    BASE64 = "base64"


def record_line(record: Record, topic: str, partition: int, encoding: Encoding) -> bytes:
    """Return the line with its newline; names are Kafka's camelCase (`docs/formats.md`)."""
    line = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": _shown(record.key, encoding),
        "value": _shown(record.value, encoding),
        "headers": [{"key": name, "value": _shown(value, encoding)} for name, value in record.headers],
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _shown(data: bytes | None, encoding: Encoding) -> object:
    if data is None:
        return None
    if encoding is Encoding.BASE64:
        return b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
