"""No process that changes the stores may lack one of them (`follower/paired_stores.py` draws the pairs).

An agent that does not know a store would leave the segments there behind, and a recovery would lose them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice

from ...follower.object_names import ROOT
from ...follower.paired_stores import pair_key, read_pair, unnamed_pairs
from ...state.errors import InvalidRequest, ObjectNotFound, StorageUnavailable, TierstateError
from ...state.object_keys import ObjectKind, object_key
from ...state.segment import RemoteSegment
from ...storage.object_store import ObjectStore
from ...storage.open import open_store
from ..opening.connection import Connection
from ..opening.partitions import partitions_with_facts
from ..opening.store_place import TopicStore

NAMED = 5


def require_every_store(connection: Connection) -> None:
    """Raise InvalidRequest if a store of topics is paired with the default store, and no rule names it."""
    default, *others = connection.stores
    for key, pair in unnamed_pairs(default, {store.description for store in others}):
        topics = list[str]()
        with suppress(TierstateError):  # without brokers, the store alone is named
            topics += islice(_topics_elsewhere(connection), NAMED)
        raise InvalidRequest(
            "segments may be in a store that no setting names: name it last in store.topics, or delete its object "
            "after you moved them",
            store=pair.url,
            object_key=key,
            topics=",".join(topics) or None,
            rule=f'"{"|".join(topics) or "the topics"}" = "{pair.url}"',
        )


def make_store_of_topics(default: ObjectStore, rule: TopicStore) -> None:
    """Make the folder of a store of topics, where the store is one. Raises StorageUnavailable if an agent used this
    store and it is away: an empty folder in its place would get segments that its readers never find.
    """
    with closing(open_store(rule.url, rule.options)) as store:
        if read_pair(default, key := pair_key(store)) is None:
            open_store(rule.url, rule.options, make=True).close()
            return
        try:
            next(iter(store.list(ROOT)), None)
        except StorageUnavailable as error:
            raise StorageUnavailable(
                "agents used this store of topics, and it is away: make it available again. If it is lost for good, "
                "delete the object in the default store that names it",
                store=rule.url,
                object_key=key,
            ) from error


def _topics_elsewhere(connection: Connection) -> Iterator[str]:
    """Yield the topics whose newest segment is in no store that the settings name."""
    follower, newest = connection.view(), dict[str, RemoteSegment]()
    for view in map(follower.partition, partitions_with_facts(follower, None, None)):
        for segment in view.readable:
            if segment.topic not in newest or newest[segment.topic].copied_at < segment.copied_at:
                newest[segment.topic] = segment
    for topic, segment in sorted(newest.items()):
        try:
            connection.store.head(object_key(segment.object_key, ObjectKind.MANIFEST))
        except ObjectNotFound:
            yield topic
