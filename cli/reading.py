"""What `consume` and `digest` share: the source of the flags, positions as offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import click

from ..state.routing import Isolation
from .context import Context
from .opened import object_names, open_store_of, opened_broker, opened_view, partitions_meant, reachable
from .positions import AtOffset, AtTime, Earliest, FromEnd, Latest, Position
from .topic_argument import TopicArgument

if TYPE_CHECKING:
    from ..fetch.reader import LogReader
    from ..fetch.source import RecordSource
    from ..runtime.listener import Event
    from ..state.offsets import Offset
    from ..state.routing import Tier

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def isolation_option(default: Isolation) -> Decorator:
    """``--isolation``."""
    return click.option(
        "--isolation",
        type=click.Choice([each.value for each in Isolation]),
        default=default.value,
        show_default=True,
        help="Whether records of open and aborted transactions are shown.",
    )


@contextmanager
def opened_reader(context: Context, topic: TopicArgument) -> Iterator[LogReader]:
    """Both tiers, directly; only the tier-state partitions these partitions map to are read."""
    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    with ExitStack() as opened:
        broker = opened.enter_context(opened_broker(context))
        partitions = partitions_meant(broker, topic.topic, topic.partition)
        # after the first answer: these take a second to load, and a wrong name should be said at once
        from ..fetch.open import open_reader
        from ..runtime.clock import SystemClock
        from ..storage.segment.keyring import KeyRing

        view = opened.enter_context(opened_view(context, partitions))
        store = opened.enter_context(closing(open_store_of(settings)))
        keyring = settings.encryption.keyring
        reader = open_reader(
            view,
            broker,
            store,
            clock=SystemClock(),
            cache=settings.cache,
            state_dir=settings.state_dir,
            keys=KeyRing.load(keyring) if keyring else None,
            names=object_names(settings, broker.control.cluster().cluster_id),
            listener=partial(_note, context),
        )
        yield opened.enter_context(closing(reader))


def _note(context: Context, event: Event) -> None:
    from ..runtime.listener import ChunkCacheOff

    if isinstance(event, ChunkCacheOff):
        context.output.note(f"disk cache of chunks is not used: {event.reason}")


@contextmanager
def opened_source(context: Context, topic: TopicArgument, via: str, isolation: Isolation) -> Iterator[RecordSource]:
    """``via``: reader, gateway or broker."""
    if via == "gateway":
        from ..fetch.gateway import GatewayClient

        url = context.gateway or f"http://{context.settings.gateway.listen}"
        with closing(GatewayClient(url, timeout=context.timeout or 60.0)) as client:
            yield client
    elif via == "broker":
        from ..broker.plain_reads import PlainConsumer
        from ..fetch.source import ConsumerSource
        from ..runtime.clock import SystemClock

        with closing(PlainConsumer(reachable(context).kafka, isolation, SystemClock())) as consumer:
            yield ConsumerSource(consumer)
    else:
        with opened_reader(context, topic) as reader:
            from ..fetch.source import ReaderSource

            yield ReaderSource(reader)


def chosen_partitions(source: RecordSource, topic: TopicArgument) -> list[int]:
    """The partition asked for, or all. Raises UnknownTopic."""
    from ..state.errors import UnknownTopic

    numbers = source.partitions(topic.topic)
    if topic.partition is None:
        return numbers
    if topic.partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic.topic, partition=topic.partition, partitions=len(numbers))
    return [topic.partition]


def resolve(
    source: RecordSource, topic: str, partition: int, position: Position, isolation: Isolation, tier: Tier
) -> Offset:
    """The offset that a position means now. A time after the last record is the end."""
    from ..state.errors import OffsetOutOfRange
    from ..state.offsets import Offset

    start, end = source.extent(topic, partition, isolation, tier)
    match position:
        case Earliest():
            return start
        case Latest():
            return end
        case AtOffset(offset=offset):
            if not start <= offset <= end:
                raise OffsetOutOfRange(
                    "offset out of range",
                    valid_start=start,
                    valid_end=end,
                    topic=topic,
                    partition=partition,
                    offset=offset,
                )
            return offset
        case FromEnd(count=count):
            return Offset(max(start, end - count))
        case AtTime(timestamp=timestamp):
            found = source.first_at(topic, partition, timestamp)
            return end if found is None else Offset(min(max(found, start), end))
        case _:
            assert_never(position)
