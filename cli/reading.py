"""Open the gateway, the reader or the source that the flags of a command choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..state.errors import InvalidRequest, LogGap, TierstateError, UnknownTopic
from ..state.offsets import Extent
from ..state.routing import Isolation, Tier
from .context import Context
from .flags import Decorator
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..app.opening.gateway_access import GatewayAccess
    from ..app.opening.positions import Position
    from ..fetch.gateway import GatewayClient
    from ..fetch.planned_split import Skipped
    from ..fetch.reader import LogReader
    from ..fetch.source import RecordSource, SearchedSource


def isolation_option(default: Isolation) -> Decorator:
    return click.option(
        "--isolation",
        type=click.Choice([each.value for each in Isolation]),
        default=default.value,
        show_default=True,
        help="Whether records of open and aborted transactions are shown.",
    )


def gateway_client(context: Context) -> GatewayClient:
    """Return a client of the gateway, which the caller must close. Raises the errors of `gateway_access`."""
    return gateway_access(context).client()


def gateway_access(context: Context) -> GatewayAccess:
    """Return URL and login of the gateway of ``--gateway``, by default that of ``gateway.listen``.

    Raises InvalidRequest if the URL is invalid, the login is incomplete or given twice, or the source is the bucket.
    """
    from ..app.opening.gateway_access import GATEWAY_TIMEOUT_S, access_of

    if context.settings.view.source == "bucket":
        raise InvalidRequest("--gateway or --source bucket, not both")
    return access_of(
        context.gateway or f"http://{context.settings.gateway.listen}",
        lambda name: f"--{name.replace('_', '-')}",
        token_file=context.token_file,
        user=context.user,
        ca=context.ca_file,
        cert_file=context.cert_file,
        key_file=context.key_file,
        timeout_s=context.timeout or GATEWAY_TIMEOUT_S,
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
def opened_search(context: Context, topic: TopicArgument, *, by_gateway: bool) -> Iterator[SearchedSource]:
    """Yield a source that reads and searches both tiers, through the gateway or directly."""
    if by_gateway:
        with closing(gateway_client(context)) as client:
            yield client
    else:
        with opened_reader(context, topic) as reader:
            yield reader


@contextmanager
def opened_source(context: Context, topic: TopicArgument, via: str, isolation: Isolation) -> Iterator[RecordSource]:
    """Yield a source of records. ``via`` is ``gateway``, ``broker`` (Kafka's own client) or ``reader``."""
    if via != "broker":
        with opened_search(context, topic, by_gateway=via == "gateway") as source:
            yield source
        return
    from ..broker.plain_reads import PlainConsumer
    from ..fetch.source import ConsumerSource

    with context.connected(only_kafka=True) as connection:
        context.wait_for_kafka(connection)
        with closing(PlainConsumer(connection.reachable.kafka, isolation, connection.clock)) as consumer:
            yield ConsumerSource(consumer)


def note_skipped(context: Context, skipped: Iterable[Skipped]) -> None:
    for partition, start, end in skipped:
        context.output.note(f"partition {partition}: {start}..{end - 1} is lost and was skipped: a person accepted it")


@dataclass(frozen=True, slots=True)
class TopicReads:
    """The source and the options with which a command reads one topic."""

    source: RecordSource
    topic: TopicArgument
    isolation: Isolation
    tier: Tier = Tier.AUTO

    def extent(self, partition: int, start: Position, end: Position) -> Extent:
        """Return the half-open range of offsets between two positions. Raises the errors of `offset_of`."""
        from ..app.opening.positions import offset_of

        name = self.topic.topic
        first, last = (
            offset_of(each, self.source, name, partition, self.isolation, self.tier) for each in (start, end)
        )
        return Extent(first, max(first, last))


def chosen_partitions(source: RecordSource, topic: TopicArgument) -> list[int]:
    """Return the numbers of the chosen partitions. Raises UnknownTopic if the topic lacks the named partition."""
    numbers = source.partitions(topic.topic)
    if topic.partition is None:
        return numbers
    if topic.partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic.topic, partition=topic.partition, partitions=len(numbers))
    return [topic.partition]


class UnreadPartitions:
    """The partitions that a command could not read to their end, each with its error. The command reads the others."""

    def __init__(self, context: Context, topic: TopicArgument) -> None:
        self._output, self._topic = context.output, topic
        self.errors: dict[int, TierstateError] = {}
        self._waiting: str | None = None

    @contextmanager
    def reading(self, partition: int) -> Iterator[None]:
        """Record an error of tierstate in the ``with`` block as the partition's error, and do not raise it.

        Prints the error if a whole topic is read. For a gap, prints how to read around it.
        """
        try:
            yield
        except TierstateError as error:
            self.errors[partition] = error
            if self._topic.partition is None:  # for a single named partition, `require_none` reports the error
                self._output.note(f"{self._topic.topic}-{partition} is not read to its end: {error}")
            if isinstance(error, LogGap):
                place = f"{self._topic.topic}:{partition}"
                around = f"{place} --to {error.start} reads what is before it, --from {error.end + 1} what is behind it"
                self._output.note(f"{around}; readers skip it after tierstate accept-gap {place}")

    def wait(self, error: TierstateError) -> None:
        """Print a note that the command waits for Kafka or the store, unless the last such note had the same reason."""
        if str(error) != self._waiting:
            self._waiting = str(error)
            self._output.note(f"{error}: waiting until it answers")

    def as_json(self) -> list[dict[str, object]]:
        """Return the partitions by ascending number, each with class and message of its error."""
        return [
            {"partition": partition, "error": type(error).__name__, "message": str(error)}
            for partition, error in sorted(self.errors.items())
        ]

    def require_none(self) -> None:
        """Raise the error of the lowest partition, if any. If there are several, it names all of the partitions."""
        if not self.errors:
            return
        partitions = sorted(self.errors)
        error = self.errors[partitions[0]]
        if len(partitions) > 1:
            error.facts["not_read"] = ",".join(f"{self._topic.topic}-{each}" for each in partitions)
        raise error
