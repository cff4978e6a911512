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

    from ...fetch.local import LocalTier
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
        ...


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
        """Yield the reads of these splits, as `LogAccess.reads` describes."""
        keys = self.keys()
        with ExitStack() as stack:
            store = stack.enter_context(closing(self.open_store(clock)))
            by_broker = any(part.segment is None for split in splits for part in split.parts)
            needs_brokers = by_broker and not self.bucket_alone
            yield SplitReads(store, keys, stack.enter_context(self.local_tier(clock)) if needs_brokers else None)

    def keys(self) -> KeyUnwrapper | None:
        """Return the key ring that decrypts segments, or None if no key ring is set. Raises InvalidRequest."""
        if self.keyring is None:
            return None
        from ...storage.segment.keyring import KeyRingFile

        return KeyRingFile(self.keyring, ignore)

    def open_store(self, clock: Clock) -> ObjectStore:
        """Return the opened object store. Raises InvalidRequest, AccessDenied, MissingExtra."""
        from .moved import StorePlace

        next_url, options = self.next_store or ("", self.store)
        return cast("ObjectStore", StorePlace(self.store_url, self.store, next_url, options).open(clock))

    @contextmanager
    def local_tier(self, clock: Clock) -> Iterator[LocalTier]:
        """Yield reads from the brokers, valid within the block. Only splits with local parts need them."""
        from ...broker.open import open_broker
        from ...fetch.local import BrokerTier

        with closing(open_broker(self.kafka, clock)) as broker:
            yield BrokerTier(broker)


def access_by(settings: Settings) -> Access:
    """Return the access that these settings give. Raises InvalidSettings, InvalidRequest."""
    from .connection import BUCKET
    from .moved import place_of

    place, alone = place_of(settings), settings.view.source == BUCKET
    target = (place.next_url, place.next_options) if place.next_url else None
    return Access(dict(settings.kafka), place.url, place.options, settings.encryption.keyring, alone, target)
