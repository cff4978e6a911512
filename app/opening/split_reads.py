"""Access for another process that reads planned splits, as plain values. The planning process makes them from settings.

A Spark executor or a worker of an export would take twice as long to start if it parsed settings.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...runtime.clock import Clock
from ...runtime.listener import ignore

if TYPE_CHECKING:
    import pyarrow as pa

    from ...fetch.planned_split import PlannedSplit
    from ...fetch.split import LocalReads
    from ...runtime.settings import Settings
    from ...storage.object_store import ObjectReads
    from ...storage.segment.encryption import KeyUnwrapper
    from .store_place import StorePlace


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
    place: StorePlace
    keyring: Path | None
    bucket_alone: bool = False
    """True if no broker may be read from."""

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        keys, local = None, None
        if self.keyring is not None:
            from ...storage.segment.keyring import KeyRingFile

            keys = KeyRingFile(self.keyring, ignore)
        with ExitStack() as stack:
            store = stack.enter_context(closing(self.place.with_topics(self.place.open(clock), clock)))
            if not self.bucket_alone and any(part.segment is None for split in splits for part in split.parts):
                from ...broker.open import open_broker
                from ...fetch.local import BrokerTier

                local = BrokerTier(stack.enter_context(closing(open_broker(self.kafka, clock))))
            yield SplitReads(store, keys, local)


def access_by(settings: Settings) -> Access:
    """Return the access that these settings give. Raises InvalidSettings, InvalidRequest."""
    from .connection import BUCKET
    from .moved import place_of

    alone = settings.view.source == BUCKET
    return Access(dict(settings.kafka), place_of(settings), settings.encryption.keyring, alone)
