"""What an executor reads with: plain values, made of the settings in the driver. Settings cost it half its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.clock import Clock
from ..runtime.listener import ignore
from ..storage.open import open_store
from ..storage.options import StoreOptions

if TYPE_CHECKING:
    from ..fetch.local import LocalTier
    from ..runtime.settings import Settings
    from ..storage.object_store import ObjectStore
    from ..storage.segment.encryption import KeyUnwrapper


@dataclass(frozen=True, slots=True)
class Access:
    """To the store, the key ring and the brokers, credentials included."""

    kafka: Mapping[str, str] = field(repr=False)
    store_url: str
    store: StoreOptions
    keyring: Path | None
    bucket_alone: bool = False
    """There are no brokers."""

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
    from ..app.connection import BUCKET, store_options

    options, alone = store_options(settings), settings.view.source == BUCKET
    return Access(dict(settings.kafka), settings.store.url, options, settings.encryption.keyring, alone)
