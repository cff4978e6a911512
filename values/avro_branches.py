"""Which of a reader's types a value of a writer's type becomes."""

from __future__ import annotations

from typing import Any


class NotResolved(Exception):
    """A writer schema has a type that is not resolved to the reader schema here."""


_PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}


def branch(tree: dict[str, Any], members: list[dict[str, Any]]) -> int:
    """Return which of the reader's types a writer's type is resolved to: its own, or else the first that it may become.
    Raises NotResolved if there is none.
    """
    fits = [at for at, member in enumerate(members) if _matches(tree, member)]
    same = [at for at in fits if members[at]["type"] == tree["type"]]
    if not fits:
        raise NotResolved
    return (same or fits)[0]


def _matches(tree: dict[str, Any], member: dict[str, Any]) -> bool:
    """Return whether a writer's type, which is no union, is resolved to a type of the reader's."""
    name = tree["type"]
    if member["type"] not in _PROMOTED.get(name, (name,)) or tree.get("size") != member.get("size"):
        return False
    if "name" not in member:
        return True
    own = tree["name"].rpartition(".")[2]
    return own == member["name"].rpartition(".")[2] or not {own, tree["name"]}.isdisjoint(member.get("aliases", ()))
