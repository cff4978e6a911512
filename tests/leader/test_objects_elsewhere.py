"""An object that a store of topics may have, which is away and which no rule names for its topic, is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.test_routed import ORDERS
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.sweeper import _is_nowhere
from tierstate.state.errors import CorruptData, StorageUnavailable
from tierstate.state.object_keys import ObjectKeys
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.routed import RoutedStore


def test_no_object_is_called_missing_while_a_store_that_may_have_it_is_away(tmp_path: Path) -> None:
    store = RoutedStore(MemoryStore(), [("audit.*", DirectoryStore(tmp_path / "own", make=False))], ObjectKeys())
    assert not _is_nowhere(store, ORDERS)
    with pytest.raises(StorageUnavailable, match="may be in another store"):
        ObjectProof(store)._head(ORDERS, 1)
    DirectoryStore(tmp_path / "own").close()
    assert _is_nowhere(store, ORDERS)
    with pytest.raises(CorruptData, match="missing"):
        ObjectProof(store)._head(ORDERS, 1)
