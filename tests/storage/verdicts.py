"""The verdict on each promise of a store, as ``tierstate certify`` finds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierstate.state.errors import TierstateError
from tierstate.storage.contract import STORE_PROMISES
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.contract_trial import Trial
from tierstate.storage.object_store import ObjectStore


def certify(
    store: ObjectStore, prefix: str, promises: Sequence[Promise] = STORE_PROMISES
) -> Iterator[tuple[Promise, TierstateError | None]]:
    """Check every promise in turn, and yield it with None or the error. Raises as `Trial.verdicts`."""
    yield from Trial(store, prefix).verdicts(promises)
