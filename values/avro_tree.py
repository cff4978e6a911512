"""An Avro schema as a tree, in which each type name is replaced by its definition.

    "int"                        {"type": "int"}
    ["null", "shop.Item"]        [{"type": "null"}, {"type": "record", "name": "shop.Item", "fields": […]}]

A type is a dictionary, and a union is a list of types. Only types, names and defaults are kept (no ``doc``, …).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from fastavro.schema import parse_schema

from ..state.errors import InvalidRequest
from .avro_schemas import of_json, refuse_recursive

Tree: TypeAlias = dict[str, Any] | list[dict[str, Any]]
_KEPT = ("name", "aliases", "symbols", "default", "size", "logicalType", "precision", "scale")


def tree_of(texts: Sequence[str], what: str) -> Tree:
    """Return the tree of the last schema, which may refer to earlier ones. Raises InvalidRequest, also if recursive."""
    named: dict[str, Any] = {}
    trees: dict[str, Tree] = {}
    tree: Tree = []
    for text in texts:
        schema = of_json(text, what, lambda document: parse_schema(document, named))
        refuse_recursive(schema, {})
        tree = _tree(schema, trees)
    return tree


def named_tree(schema: Any, named: dict[str, Any]) -> Tree:
    """Return the tree of a parsed schema. A record within itself is the name of it there. ``named``: gets all types
    that have a name.
    """
    tree: Tree = _tree(schema, named)
    return tree


def text_of(tree: Tree) -> str:
    """Return the tree's schema as JSON text. Raises InvalidRequest if two different types have the same name."""
    return json.dumps(_schema(tree, {}))


def _tree(schema: Any, trees: dict[str, Tree]) -> Any:
    """Return the tree of a parsed schema. ``trees``: the trees of the named types met so far; new ones are added."""
    if isinstance(schema, list):
        return [_tree(each, trees) for each in schema]
    if isinstance(schema, str):
        return trees.get(schema, {"type": schema})
    if not isinstance(schema["type"], str):
        return _tree(schema["type"], trees)
    tree = {"type": schema["type"]} | {name: schema[name] for name in _KEPT if name in schema}
    for inner in ("items", "values"):
        if inner in schema:
            tree[inner] = _tree(schema[inner], trees)
    if "fields" in schema:
        tree["fields"] = [
            {name: field[name] for name in ("name", "aliases", "default") if name in field}
            | {"type": _tree(field["type"], trees)}
            for field in schema["fields"]
        ]
    if "name" in schema:
        trees[schema["name"]] = tree
    elif tree["type"] in trees:  # {"type": "a name"}
        return trees[tree["type"]]
    return tree


def _schema(tree: Any, written: dict[str, Any]) -> Any:
    """Return a tree's schema as JSON. ``written``: the trees of the named types written so far; new ones are added."""
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
    schema = dict(tree)
    for inner in ("items", "values"):
        if inner in tree:
            schema[inner] = _schema(tree[inner], written)
    if "fields" in tree:
        schema["fields"] = [field | {"type": _schema(field["type"], written)} for field in tree["fields"]]
    return schema
