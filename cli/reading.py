"""Open the reader or the source that the flags of `consume` and `digest` choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from ..state.routing import Isolation
from .context import Context
from .flags import Decorator
from .gateway_access import gateway_client
from .topic_argument import TopicArgument

if TYPE_CHECKING:
    from ..fetch.planned_split import Skipped
    from ..fetch.reader import LogReader
    from ..fetch.source import RecordSource, SearchedSource


def isolation_option(default: Isolation) -> Decorator:
    """Return the option ``--isolation`` with the given default."""
    return click.option(
        "--isolation",
        type=click.Choice([each.value for each in Isolation]),
        default=default.value,
        show_default=True,
        help="Whether records of open and aborted transactions are shown.",
    )


@contextmanager
def opened_reader(context: Context, topic: TopicArgument) -> Iterator[LogReader]:
    """Yield a reader of both tiers, or of the bucket alone if ``view.source`` is ``bucket``.
    It follows only the tier-state partitions that have facts of the chosen partitions."""
    from ..app.opening.partitions import find_partitions

    with context.reading("kafka.bootstrap.servers", "store.url") as connection:
        context.wait_for_kafka(connection)
        partitions = find_partitions(connection.control, topic.topic, topic.partition)
        yield connection.reader(connection.view(partitions))


@contextmanager
def opened_search(context: Context, topic: TopicArgument) -> Iterator[SearchedSource]:
    """Yield a source that reads and searches both tiers, through the gateway if ``--gateway`` is set."""
    if context.gateway:
        with closing(gateway_client(context)) as client:
            yield client
    else:
        with opened_reader(context, topic) as reader:
            from ..fetch.source import ReaderSource

            yield ReaderSource(reader)


@contextmanager
def opened_source(context: Context, topic: TopicArgument, via: str, isolation: Isolation) -> Iterator[RecordSource]:
    """Yield a source of records. ``via`` is ``gateway``, ``broker`` (Kafka's own client) or ``reader``."""
    if via == "gateway":
        with closing(gateway_client(context)) as client:
            yield client
    elif via == "broker":
        from ..broker.plain_reads import PlainConsumer
        from ..fetch.source import ConsumerSource

        with context.connected(only_kafka=True) as connection:
            context.wait_for_kafka(connection)
            with closing(PlainConsumer(connection.reachable.kafka, isolation, connection.clock)) as consumer:
                yield ConsumerSource(consumer)
    else:
        with opened_reader(context, topic) as reader:
            from ..fetch.source import ReaderSource

            yield ReaderSource(reader)


def note_skipped(context: Context, skipped: Iterable[Skipped]) -> None:
    for partition, start, end in skipped:
        context.output.note(f"partition {partition}: {start}..{end - 1} is lost and was skipped, as a person accepted")


def chosen_partitions(source: RecordSource, topic: TopicArgument) -> list[int]:
    """Return the numbers of the chosen partitions. Raises UnknownTopic if the topic lacks the named partition."""
    from ..state.errors import UnknownTopic

    numbers = source.partitions(topic.topic)
    if topic.partition is None:
        return numbers
    if topic.partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic.topic, partition=topic.partition, partitions=len(numbers))
    return [topic.partition]
