"""Segments that move to the store of their topic while agents expire them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tierstate.app.operating.topic_move import TopicMove
from tierstate.state.object_keys import ObjectKeys
from tierstate.storage.memory import MemoryStore
from tierstate.storage.mirror import Done
from tierstate.storage.object_store import Data
from tierstate.storage.routed import RoutedStore

BASE = "audit-MWJ6FHTfRYy67jzwZdeqSQ/0/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ"
KEY = f"{BASE}.log"


class Watched(MemoryStore):
    """``during`` is called when an object was read and is not there yet. ``deleted`` lists the stores in order."""

    def __init__(self, deleted: list[MemoryStore]) -> None:
        super().__init__()
        self.during: Callable[[], object] = lambda: None
        self.deleted = deleted

    def put_if_absent(self, key: str, data: Data) -> None:
        self.during()
        super().put_if_absent(key, data)

    def delete_many(self, keys: Iterable[str]) -> None:
        self.deleted.append(self)
        super().delete_many(keys)


def stores(*, back: bool) -> tuple[Watched, Watched, RoutedStore, RoutedStore]:
    """Return the old and the new store of ``audit``, an agent's store and another process's. ``back``: to default."""
    deleted = list[MemoryStore]()
    old, new = Watched(deleted), Watched(deleted)
    default, own, pattern = (new, old, "other") if back else (old, new, "audit")
    agents, routed = (RoutedStore(default, [(pattern, own)], ObjectKeys()) for _ in range(2))
    old.put_if_absent(KEY, b"1234")
    assert [each.key for each in agents.list(KEY.rpartition("/")[0] + "/")] == [KEY]
    return old, new, agents, routed


@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_a_segment_that_is_deleted_while_it_moves_leaves_no_copy_behind(is_live: bool, many: bool, back: bool) -> None:
    old, new, agents, routed = stores(back=back)
    new.during = lambda: agents.delete_many([KEY]) if many else agents.delete(KEY)
    (step,) = TopicMove(routed, routed.stores[0], {BASE}, lambda base: is_live).steps(finish=False)
    assert not list(old.list())
    assert (step.done, [each.key for each in new.list()]) == ((Done.STREAMED, [KEY]) if is_live else (Done.GONE, []))


@pytest.mark.parametrize("back", [False, True])
def test_the_store_to_which_segments_move_is_the_last_that_an_agent_deletes_them_in(back: bool) -> None:
    old, new, agents, _ = stores(back=back)
    agents.delete_many([KEY])
    assert old.deleted == [old, new]
