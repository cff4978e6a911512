"""One word for one key: the words of `--json`, the HTTP answers, the agents' status and the facts of errors.

The words are Kafka's where Kafka has one. Facts and descriptors are printed as their schemas write them, and records
keep Kafka's camelCase (docs/formats.md); neither is looked at here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from tierstate.api import models
from tierstate.api.problems import SHOWN
from tierstate.state import errors

ROOMS = Path(__file__).resolve().parents[1] / "src" / "tierstate"
ROOM_NAMES = sorted(room.name for room in ROOMS.iterdir() if room.is_dir())
PRINTING = ("app", "api", "cli")
"""Layers whose dict literals are answers, or parts of them."""

WORDS = {
    "topic": ("topic_name",),
    "topic_id": ("topicId", "topic_uuid"),
    "partition": ("partition_id", "partition_number"),
    "log_start_offset": ("log_start", "log_begin", "log_start_from"),
    "local_log_start_offset": ("local_start", "local_start_offset", "earliest_local_offset"),
    "highest_remote_offset": ("highest_remote", "latest_tiered_offset"),
    "high_watermark": ("hw", "high_water_mark"),
    "last_stable_offset": ("lso", "last_stable"),
    "leader_epoch": ("epoch",),
    "start_offset": ("first_at",),
    "end_offset": ("end_at",),
    "offset_count": ("offsets_count",),
    "offsets": ("range", "offset_range"),
    "first_offset": ("first",),
    "last_offset": ("last",),
    "base_offset": ("base",),
    "timestamp": ("ts", "time_ms"),
    "group_id": ("group",),
    "committed_offset": ("committed",),
    "broker_id": ("node",),
    "segment_id": ("segment",),
    "object_key": ("object",),
    "expires_at": ("until", "expires"),
    "executed": ("released", "done"),
}
"""Each word, and the synonyms that are not allowed. Times are ms since the epoch."""

ELSEWHERE = {
    "first": "a position in the tier-state topic, an index, a port",
    "last": "likewise",
}
"""Synonyms in that list that the facts of errors use for something else."""

PRINTED = ("Counted", "EndTransaction", "Obeyed", "PartitionFacts", "PartitionStatus", "PinnedBy", "Replayed")
"""Classes whose values are printed whole, wherever they are."""


def keys_of_commands() -> set[str]:
    """Return the keys of every dict that a command or the gateway spells out, and of values that are printed whole."""
    spelled = {key for file in _files(*PRINTING) for key in _dict_keys(_parsed(file))}
    return spelled | {name for fields in fields_of_printed().values() for name in fields}


def fields_of_printed() -> dict[str, list[str]]:
    classes = [
        node
        for file in _files(*ROOM_NAMES)
        for node in _parsed(file).body
        if isinstance(node, ast.ClassDef) and node.name in PRINTED
    ]
    return {
        node_class.name: [
            node.target.id
            for node in node_class.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
        for node_class in classes
    }


def keys_of_http() -> set[str]:
    """Return the keys of every body under `/v1`."""
    bodies = [model for model in vars(models).values() if isinstance(model, type) and issubclass(model, BaseModel)]
    return {name for body in bodies for name in body.model_fields} | SHOWN


def keys_of_errors() -> set[str]:
    """Return the names of facts with which our errors are raised or made, also if gathered as ``facts`` before."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    kinds |= {"error_of", "error_of_exception"}
    return {key for file in _files(*ROOM_NAMES) for key in _fact_names(_parsed(file), kinds)}


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _files(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from (ROOMS / room).glob("**/*.py")


def _dict_keys(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def _fact_names(tree: ast.Module, kinds: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in kinds:
                yield from (word.arg for word in node.keywords if word.arg is not None)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "facts" for target in targets):
                yield from _dict_keys(node.value)
