"""Typed tables of topics that mean something, and whether they show this meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.typed_logs import folder_of
from tests.lake.typed_topics import AVRO, DDL, Meant, avro_topic, json_topic
from tests.servers.schema_registry import Registry, registry
from tierstate.lake.columns import Columns
from tierstate.lake.table_check import check_table
from tierstate.lake.table_follow import TableLimits
from tierstate.values.form import Form
from tierstate.values.schema_registry import RegistryAccess

Make = Callable[..., Golden]
SMALL = TableLimits(file_bytes=700, commit_bytes=1_500)
"""Small enough for several commits of several files."""
COUNT = 240
"""The number of records of a topic."""
HOUR_MS = 3_600_000
"""The time between two records: a topic of some days."""


def columns_of(ddl: str, headers: Any = "list") -> Columns:
    return Columns(EVERY_COLUMN, value=Form("json", ddl), headers=headers)


class TypedWorld(TableWorld):
    """A topic and its table. ``server`` is the registry, if there is one."""

    server: Registry

    def __init__(self, make: Make, path: Path, topic: Sequence[Meant], columns: Columns, **world: Any) -> None:
        self.topic = topic
        records = [(b"%d" % offset, meant.data) for offset, meant in enumerate(topic)]
        golden = make(path=folder_of(path / "topic", records, a_batch=5, a_segment=40, apart_ms=HOUR_MS))
        super().__init__(golden, path / "table", columns=columns, **{"limits": SMALL, **world})

    def produce(self, end: int) -> None:
        """Let the log end at this offset."""
        self.golden.local.high_watermark = self.golden.local.last_stable_offset = end

    def follow_to(self, end: int) -> None:
        self.produce(end)
        self.follow()

    def require_same(self) -> int:
        """Require that the table is its log, by its check and each record's meaning; return how many do not parse."""
        assert not check_table(self.table(), self.log(), window_bytes=2_000).findings
        table, rows = self.table(), self.rows().to_pylist()
        [reach] = table.place().partitions.values()
        assert [row["offset"] for row in rows] == list(range(reach.start, reach.end))
        for row in rows:
            meant = self.topic[row["offset"]]
            [written] = reach.written(row["offset"], row["offset"] + 1)
            form = table.facts.versions[written.version].value
            assert form is not None
            value = _as(meant, form.kind())
            if meant.data is not None and value is None:
                assert (row["value"], row["_corrupt"]) == (None, {"key": None, "value": meant.data}), row
            else:
                shown = row["value"] and {name: each for name, each in row["value"].items() if each is not None}
                assert (shown, row["_corrupt"]) == (value, None), row
        return sum(row["_corrupt"] is not None for row in rows)


def _as(meant: Meant, kind: pa.StructType) -> dict[str, Any] | None:
    """Return the value without nulls and without fields that the columns lack; None if it does not have their types."""
    if meant.poison or meant.value is None:
        return None
    value = {name: each for name, each in meant.value.items() if name in kind.names and each is not None}
    try:
        pa.array([value], kind)
    except pa.ArrowInvalid:
        return None
    return value


def json_world(make: Make, path: Path, ddl: str = DDL[0], **world: Any) -> TypedWorld:
    return TypedWorld(make, path, json_topic(COUNT, Random(3)), columns_of(ddl), **world)


@contextmanager
def avro_world(make: Make, path: Path, **world: Any) -> Iterator[TypedWorld]:
    """Yield a world whose registry runs as long as the block lasts; the table begins with its first schema."""
    with registry({at: answer_of(schema) for at, schema in enumerate(AVRO, 1)}) as server:
        columns = Columns(EVERY_COLUMN, value=Form("avro", json.dumps(AVRO[0]), registered=True))
        access = RegistryAccess(server.url, timeout=2.0)
        made = TypedWorld(
            make, path, avro_topic(COUNT, Random(3)), columns, registry=access, **{"grows": ("value",), **world}
        )
        made.server = server
        yield made


def answer_of(schema: Any, **more: Any) -> tuple[int, Any]:
    return 200, {"schema": json.dumps(schema), **more}
