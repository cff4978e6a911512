"""What another process reads planned splits with: plain values, made of the settings here.

An executor of Spark, a worker of an export: settings would cost them half their start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..runtime.clock import Clock
from ..runtime.listener import ignore
from ..storage.open import open_store
from ..storage.options import StoreOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ..fetch.local import LocalTier
    from ..fetch.planned_split import PlannedSplit
    from ..fetch.split import LocalReads
    from ..runtime.settings import Settings
    from ..storage.object_store import ObjectStore
    from ..storage.segment.encryption import KeyUnwrapper
    from ..storage.segment.log_chunks import ObjectReads


@dataclass(frozen=True, slots=True)
class SplitReads:
    """What `fetch.split.read_split` reads with. ``local`` None: no split of these has a local part."""

    store: ObjectReads
    keys: KeyUnwrapper | None
    local: LocalReads | None

    def records(self, split: PlannedSplit) -> Generator[pa.RecordBatch, None, None]:
        """Exactly its records, with all columns. To be closed. Raises as `fetch.split.read_split`."""
        from ..fetch.piece import records
        from ..fetch.split import read_split

        for piece in read_split(split, self.store, self.local, keys=self.keys):
            yield from records(piece, split.topic, split.partition)


class LogAccess(Protocol):
    """Plain values that travel: `Access`, or `gateway_access.GatewayAccess`."""

    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> AbstractContextManager[SplitReads]:
        """For as long as the block lasts. Raises InvalidRequest, AccessDenied, MissingExtra."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """To the store, the key ring and the brokers, credentials included."""

    kafka: Mapping[str, str] = field(repr=False)
    store_url: str
    store: StoreOptions
    keyring: Path | None
    bucket_alone: bool = False
    """There are no brokers."""

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        """As `LogAccess.reads`."""
        keys = self.keys()
        with ExitStack() as opened:
            store = opened.enter_context(closing(self.open_store(clock)))
            by_broker = any(part.segment is None for split in splits for part in split.parts)
            asked = by_broker and not self.bucket_alone
            yield SplitReads(store, keys, opened.enter_context(self.local_tier(clock)) if asked else None)

    def keys(self) -> KeyUnwrapper | None:
        """What opens encrypted segments. Raises InvalidRequest."""
        if self.keyring is None:
            return None
        from ..storage.segment.keyring_file import KeyRingFile

        return KeyRingFile(self.keyring, ignore)

    def open_store(self, clock: Clock) -> ObjectStore:
        """Raises InvalidRequest, AccessDenied, MissingExtra."""
        return open_store(self.store_url, self.store, clock=clock)

    @contextmanager
    def local_tier(self, clock: Clock) -> Iterator[LocalTier]:
        """The brokers, for as long as the block lasts: for those alone who read from one."""
        from ..broker.open import open_broker
        from ..fetch.local import BrokerTier

        with closing(open_broker(self.kafka, clock)) as broker:
            yield BrokerTier(broker)


def access_by(settings: Settings) -> Access:
    """Raises InvalidSettings, InvalidRequest."""
    from .connection import BUCKET, store_options

    options, alone = store_options(settings), settings.view.source == BUCKET
    return Access(dict(settings.kafka), settings.store.url, options, settings.encryption.keyring, alone)
