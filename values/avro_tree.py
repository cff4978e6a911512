"""An Avro schema as a tree: each name is the type it names, each type a dictionary, or a list where it is a union.

    "int"                        {"type": "int"}
    ["null", "shop.Item"]        [{"type": "null"}, {"type": "record", "name": "shop.Item", "fields": […]}]

What a schema says beside types, names and defaults (``doc``, ``order``, …) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from fastavro.schema import parse_schema

from ..state.errors import InvalidRequest
from .avro_bounds import refuse_recursive
from .avro_schemas import of_json

Tree: TypeAlias = dict[str, Any] | list[dict[str, Any]]
_KEPT = ("name", "aliases", "symbols", "default", "size", "logicalType", "precision", "scale")


def tree_of(texts: Sequence[str], what: str) -> Tree:
    """Of the last one; those before it are what it refers to. Raises InvalidRequest, also for a record in itself."""
    named: dict[str, Any] = {}
    trees: dict[str, Tree] = {}
    made: Tree = []
    for text in texts:
        schema = of_json(text, what, lambda said: parse_schema(said, named))
        refuse_recursive(schema, {})
        made = _tree(schema, trees)
    return made


def text_of(tree: Tree) -> str:
    """A schema. Raises InvalidRequest where two types have one name."""
    return json.dumps(_schema(tree, {}))


def _tree(schema: Any, trees: dict[str, Tree]) -> Any:
    """``trees``: by name, of the types met so far."""
    if isinstance(schema, list):
        return [_tree(each, trees) for each in schema]
    if isinstance(schema, str):
        return trees.get(schema, {"type": schema})
    if not isinstance(schema["type"], str):
        return _tree(schema["type"], trees)
    made = {"type": schema["type"]} | {name: schema[name] for name in _KEPT if name in schema}
    for inner in ("items", "values"):
        if inner in schema:
            made[inner] = _tree(schema[inner], trees)
    if "fields" in schema:
        made["fields"] = [
            {name: field[name] for name in ("name", "aliases", "default") if name in field}
            | {"type": _tree(field["type"], trees)}
            for field in schema["fields"]
        ]
    if "name" in schema:
        trees[schema["name"]] = made
    elif made["type"] in trees:  # {"type": "a name"}
        return trees[made["type"]]
    return made


def _schema(tree: Any, written: dict[str, Any]) -> Any:
    """``written``: by name, of the types that stand before."""
    if isinstance(tree, list):
        return [_schema(each, written) for each in tree]
    name = tree.get("name")
    if name in written:
        if written[name] != tree:
            raise InvalidRequest("the schema has two types of one name", name=name)
        return name
    if len(tree) == 1:
        return tree["type"]
    if name is not None:
        written[name] = tree
    made = dict(tree)
    for inner in ("items", "values"):
        if inner in tree:
            made[inner] = _schema(tree[inner], written)
    if "fields" in tree:
        made["fields"] = [field | {"type": _schema(field["type"], written)} for field in tree["fields"]]
    return made
