"""Access for another process that reads planned splits, as plain values. The planning process makes them from settings.

A Spark executor or a worker of an export would take twice as long to start if it parsed settings.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ...runtime.clock import Clock
from ...runtime.listener import ignore
from ...storage.options import StoreOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ...fetch.planned_split import PlannedSplit
    from ...fetch.split import LocalReads
    from ...runtime.settings import Settings
    from ...storage.object_store import ObjectReads, ObjectStore
    from ...storage.segment.encryption import KeyUnwrapper


@dataclass(frozen=True, slots=True)
class SplitReads:
    """The arguments of `fetch.split.read_split`. ``local`` is None if no split reads from a broker."""

    store: ObjectReads
    keys: KeyUnwrapper | None
    local: LocalReads | None

    def records(self, split: PlannedSplit) -> Generator[pa.RecordBatch, None, None]:
        """Yield exactly the records of ``split``, with all columns. Close the generator. Raises as `read_split`."""
        from ...fetch.piece import records
        from ...fetch.split import read_split

        for piece in read_split(split, self.store, self.local, keys=self.keys):
            yield from records(piece, split.topic, split.partition)


class LogAccess(Protocol):
    """Plain values that are sent to other processes: `Access`, or `gateway_access.GatewayAccess`."""

    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> AbstractContextManager[SplitReads]:
        """Yield the reads, valid within the block. Raises InvalidRequest, AccessDenied, MissingExtra."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to the store, the key ring and the brokers, credentials included."""

    kafka: Mapping[str, str] = field(repr=False)
    store_url: str
    store: StoreOptions
    keyring: Path | None
    bucket_alone: bool = False
    """True if no broker may be read from."""
    next_store: tuple[str, StoreOptions] | None = field(default=None, repr=False)
    """The URL and the options of ``[next_store]``, to which the objects may move."""

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        from .moved import StorePlace

        keys, local = None, None
        if self.keyring is not None:
            from ...storage.segment.keyring import KeyRingFile

            keys = KeyRingFile(self.keyring, ignore)
        with ExitStack() as stack:
            next_url, options = self.next_store or ("", self.store)
            place = StorePlace(self.store_url, self.store, next_url, options)
            store = cast("ObjectStore", stack.enter_context(closing(place.open(clock))))
            if not self.bucket_alone and any(part.segment is None for split in splits for part in split.parts):
                from ...broker.open import open_broker
                from ...fetch.local import BrokerTier

                local = BrokerTier(stack.enter_context(closing(open_broker(self.kafka, clock))))
            yield SplitReads(store, keys, local)


def access_by(settings: Settings) -> Access:
    """Return the access that these settings give. Raises InvalidSettings, InvalidRequest."""
    from .connection import BUCKET
    from .moved import place_of

    place, alone = place_of(settings), settings.view.source == BUCKET
    target = (place.next_url, place.next_options) if place.next_url else None
    return Access(dict(settings.kafka), place.url, place.options, settings.encryption.keyring, alone, target)
