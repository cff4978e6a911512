"""`tierstate.connect` for interactive use, and `tierstate.read_records`: both read both tiers as Arrow data."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from inspect import GEN_RUNNING, getgeneratorstate
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..runtime.clock import SystemClock
from ..runtime.settings_keys import is_secret, path_of_dotted
from ..runtime.settings_load import settings_from
from ..state.errors import InvalidRequest, UnknownTopic
from ..state.routing import Isolation
from .reads import Read, When, range_of, time_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..fetch.gateway import GatewayClient
    from ..fetch.piece import LogicalBounds
    from ..fetch.reader import LogReader
    from ..fetch.source import RecordSource
    from ..runtime.settings import Settings
    from ..state.ids import TopicIdPartition

Opened = tuple["LogReader | GatewayClient", "Callable[[Iterable[TopicIdPartition]], None]"]
"""The reader, and a function to call with partitions before they are read: it makes the view include them."""


def connect(
    bootstrap: str | None = None,
    store: str | None = None,
    *,
    source: str | None = None,
    gateway: str | None = None,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    kafka: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Log:
    """Return a `Log` of a cluster and its remote tier (``bootstrap`` and ``store``), of a gateway (``gateway``), or of
    the bucket alone (``store`` and ``source="bucket"``: no request goes to a broker; docs/bucket.md).

    ``bootstrap``: ``host:port,…`` of brokers. ``store``: ``file:///folder``, ``s3://bucket/prefix``, … ``kafka``: more
    librdkafka properties. ``settings``: other settings, by their names in docs/settings.md, as
    ``{"store.endpoint": "https://…"}``. ``gateway``: ``https://host:port``. To log in there, give a bearer
    ``token``, a Kafka ``user`` and ``password``, or a client certificate (``cert_file``, and ``key_file`` if the key is
    in another file). ``ca_file``: a PEM file with the authorities that sign the gateway's certificate.

    No connection is opened before the first request. ``with`` or `Log.close` closes the log; otherwise Python closes it
    when it is no longer referenced.

    Raises InvalidRequest, which names the argument, and InvalidSettings.
    """
    of_a_gateway = dict(
        token=token, user=user, password=password, ca_file=ca_file, cert_file=cert_file, key_file=key_file
    )
    for name, text in dict(bootstrap=bootstrap, store=store, source=source, gateway=gateway, **of_a_gateway).items():
        if text is not None and not isinstance(text, str):
            raise InvalidRequest(f"{name} is a text, as in {name}={_EXAMPLES[name]!r}", given=type(text).__name__)
    require_mapping("kafka", kafka, '{"security.protocol": "SSL"}; brokers alone are bootstrap="host:port"')
    require_mapping("settings", settings, '{"store.endpoint": "https://…"}; a store alone is store="s3://bucket"')
    if gateway is not None:
        if bootstrap or store or source or kafka or settings:
            raise InvalidRequest("gateway stands alone: it knows its brokers and its store", gateway=gateway)
        if (user is None) != (password is None) or (token and user):
            raise InvalidRequest("a gateway takes a token, or user and password, or neither", gateway=gateway)
        from ..app.opening.gateway_access import client_certificate
        from ..fetch.gateway import GatewayClient

        basic = None if user is None or password is None else (user, password)
        ca, chain, key = (None if each is None else Path(each) for each in (ca_file, cert_file, key_file))
        certificate = client_certificate(chain, key, "cert_file", "key_file")
        client = GatewayClient(gateway, token=token, basic=basic, ca=ca, certificate=certificate)
        return Log(f"gateway={gateway!r}", lambda parts: _kept(parts, client))
    for name, text in of_a_gateway.items():
        if text is not None:
            raise InvalidRequest(f"{name} is for a gateway, and gateway is not given")
    from ..app.opening.connection import BROKER, STORE

    places = {"bootstrap": (BROKER, bootstrap), "store": (STORE, store), "source": ("view.source", source)}
    shown = ", ".join(f"{argument}={value!r}" for argument, (_, value) in places.items() if value)
    by_kafka = {f"kafka.{name}": value for name, value in (kafka or {}).items()}
    by_place = {argument: dict([setting]) for argument, setting in places.items()}
    return Log(shown, _by_settings(agreed({"settings": settings or {}, "kafka": by_kafka, **by_place})))


_EXAMPLES = {
    "bootstrap": "host:9092",
    "store": "s3://bucket",
    "source": "bucket",
    "gateway": "http://host:8080",
    "token": "…",
    "user": "ann",
    "password": "…",
    "ca_file": "/etc/ssl/ca.pem",
    "cert_file": "/etc/ssl/ann.pem",
    "key_file": "/etc/ssl/ann.key",
}


class Log:
    """The result of `connect`. It gives access to topics, each as one log over both tiers. Not thread-safe."""

    def __init__(self, description: str, open_it: Callable[[ExitStack], Opened]) -> None:
        self._description, self._open_it = description, open_it
        self._parts = ExitStack()
        self._opened: Opened | None = None
        self._reads = weakref.WeakSet[Generator[object, None, None]]()
        self._closer = weakref.finalize(self, self._parts.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tierstate {self._description}{'' if self._closer.alive else ', closed'}>"

    def close(self) -> None:
        """Close everything that was opened. Reads that are still running end with an error. Idempotent."""
        for read in list(self._reads):
            if getgeneratorstate(read) != GEN_RUNNING:  # a running generator cannot be closed: it ends by itself
                read.close()
        self._closer()

    def closes(self, read: Generator[object, None, None]) -> None:
        """Register ``read``, so that `close` closes it: an unfinished read that the caller keeps would read ahead."""
        self._reads.add(read)

    def topics(self) -> list[str]:
        """Return the names of the tiered topics, ascending. Raises Unavailable, AccessDenied, InvalidSettings."""
        return sorted(self.opened().topics())

    def topic(self, name: str) -> Topic:
        """Return a topic. This sends no request: if the name is wrong, the first request raises UnknownTopic."""
        if not isinstance(name, str) or not name:
            raise InvalidRequest('name of a topic is a text, as in topic("orders")', given=repr(name))
        return Topic(self, name)

    def opened(self) -> LogReader | GatewayClient:
        """Return the reader. The first call opens it; if that fails, the parts opened so far are closed."""
        if not self._closer.alive:
            raise InvalidRequest("this is closed: connect again", connection=self._description)
        if self._opened is None:
            with ExitStack() as parts:
                self._opened = self._open_it(parts)
                self._parts.push(parts.pop_all())
        return self._opened[0]

    def source(self, topic: str | None = None, partitions: Iterable[int] = ()) -> RecordSource:
        """Return the source of records. Facts of all ``partitions`` are read into the view together, not one by one."""
        from ..fetch.gateway import GatewayClient

        opened = self.opened()
        if topic is not None and self._opened is not None and not isinstance(opened, GatewayClient):
            self._opened[1]([opened.partition(topic, each).partition for each in partitions])
        return opened


class Topic:
    """One topic as one log over both tiers."""

    def __init__(self, log: Log, name: str) -> None:
        self._log, self.name = log, name

    def __repr__(self) -> str:
        return f"<tierstate topic {self.name!r}>"

    def partitions(self) -> list[int]:
        """Return the partition numbers, ascending. Raises UnknownTopic."""
        return self._log.source().partitions(self.name)

    def bounds(self, partition: int) -> LogicalBounds:
        """Return the current offsets of one partition over both tiers. Raises UnknownTopic, Unavailable."""
        [number] = self._chosen([partition])
        return self._log.opened().bounds(self.name, number)

    def offsets_for_time(self, time: datetime | str | int) -> dict[int, int | None]:
        """Return each partition's first offset at or after a time (`time_of`), or None if it has no such record."""
        moment = time_of("time", time, SystemClock().now_ms())
        numbers = self.partitions()
        source = self._log.source(self.name, numbers)
        return {number: source.first_at(self.name, number, moment) for number in numbers}

    def read(
        self,
        *,
        start: When | Mapping[int, When] = "earliest",
        end: When | Mapping[int, When] = "latest",
        since: datetime | str | int | None = None,
        partitions: Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        limit: int | None = None,
        isolation: str = "read_committed",
        progress: Callable[[int, int], None] | None = None,
    ) -> Read:
        """Return the records of the offsets ``[start, end)`` of every partition. This call determines the offsets. The
        records are read when the result is used: pyarrow, pandas, Polars and DuckDB accept it directly.

        ``start``, ``end``: ``earliest``, ``latest``, an offset, a datetime, ISO text, ``-1h``; or one of these for each
        partition, as ``{0: 17, 1: "latest"}``. A time means the first record at or after it; its default zone is UTC.
        ``since``: a time, instead of ``start``. ``partitions``: numbers, by default all. ``columns``: some of key,
        value, topic, partition, offset, timestamp (milliseconds, UTC), timestampType, headers. ``limit``: the most
        records; partitions are read in ascending order. ``isolation``: read_committed or read_uncommitted.
        ``progress`` is called with the number of offsets done and the total number.

        Raises InvalidRequest, which names the argument, UnknownTopic, OffsetOutOfRange and Unavailable.
        """
        if since is not None:
            if start != "earliest":
                raise InvalidRequest("since and start both say where to begin: give one", since=since, start=start)
            start = f"@{max(0, time_of('since', since, SystemClock().now_ms()))}"
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidRequest("limit is a number of records, 0 or more", limit=repr(limit))
        try:
            level = Isolation(isolation)
        except ValueError:
            levels = " or ".join(each.value for each in Isolation)
            raise InvalidRequest(f"isolation is {levels}", isolation=repr(isolation)) from None
        names = None if columns is None else _listed("columns", columns, '["offset", "value"]')
        checked = Read.checked_columns(names)
        now = SystemClock().now_ms()
        chosen = self._chosen(None if partitions is None else _listed("partitions", partitions, "[0, 1]"))
        for argument, offsets in (("start", start), ("end", end)):
            if isinstance(offsets, Mapping) and set(offsets) != set(chosen):
                raise InvalidRequest(f"{argument} names an offset for each partition", given=list(offsets), read=chosen)
        source = self._log.source(self.name, chosen)
        ranges = {each: range_of(source, (self.name, each), start, end, (level, now)) for each in chosen}
        # the read refers to the log: `connect(…).topic("orders").read()` keeps the connection open
        return Read(self._log, self.name, ranges, checked, limit, level, progress)

    def _chosen(self, numbers: list[int] | None) -> list[int]:
        existing = self.partitions()
        for number in numbers or []:
            if number not in existing:
                raise UnknownTopic("no such partition", topic=self.name, partition=number, partitions=len(existing))
        return existing if numbers is None else sorted(set(numbers))


def _kept(parts: ExitStack, client: GatewayClient) -> Opened:
    parts.callback(client.close)
    return client, _nothing_more


def _nothing_more(partitions: Iterable[TopicIdPartition]) -> None:
    """Do nothing: this reader has the facts of all partitions."""


def _by_settings(options: Mapping[str, object]) -> Callable[[ExitStack], Opened]:
    """Check the settings now. Return a function that opens the parts."""
    from ..app.opening.connection import BROKER, BUCKET, FOR_READERS, STORE, Connection
    from ..app.opening.open import open_connection
    from ..runtime.settings import require

    judged = settings_from({**FOR_READERS, **options})
    require(judged, *([STORE] if judged.view.source == BUCKET else [BROKER, STORE]))

    def opened(parts: ExitStack) -> Opened:
        connection = open_connection(judged)
        parts.callback(connection.close)
        if not isinstance(connection, Connection):
            return connection.reader(connection.view()), _nothing_more
        view = connection.growing_view()
        return connection.reader(view), view.want

    return opened


def require_mapping(name: str, value: object, meant: str) -> None:
    """Raise InvalidRequest with an example if ``value`` is neither a mapping nor None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidRequest(f"{name} is a mapping, as in {name}={meant}", given=type(value).__name__)


def agreed(arguments: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the settings of all arguments. A value of None counts as not given. Raises InvalidRequest if two arguments
    give different values for one setting.
    """
    settings: dict[str, object] = {}
    argument_of: dict[str, str] = {}
    for argument, values in arguments.items():
        for name, value in values.items():
            if value is None:
                continue
            if settings.setdefault(name, value) != value:
                shown = {} if is_secret(path_of_dotted(name)) else {argument_of[name]: settings[name], argument: value}
                raise InvalidRequest(f"{argument_of[name]} and {argument} say two things of {name}: give one", **shown)
            argument_of.setdefault(name, argument)
    return settings


def _listed(name: str, value: object, meant: str) -> list:  # type: ignore[type-arg]
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name} is a list, as in {name}={meant}", given=repr(value))
    return list(value)


def read_records(
    kafka: Mapping[str, str],
    store: str,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: str = "read_committed",
    settings: Mapping[str, object] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield exactly the records of the offsets ``[start, end)``, in order, from both tiers.

    ``topic``: the topic's name, or the topic id of a deleted topic. ``kafka``: librdkafka properties. ``store``:
    ``file:///folder``, ``s3://bucket/prefix``, … ``settings``: other settings, by their names in docs/settings.md, as
    ``{"store.endpoint": "https://…", "encryption.keyring": "/path"}``. With ``{"view.source": "bucket"}`` no request
    goes to a broker and ``kafka`` may be empty. The remote tier is then read by the view in the bucket, whose age is
    logged first, or by an earlier view (``view.as_of``). Columns are those of Spark's Kafka source: key, value
    (binary), topic, partition, offset, timestamp (milliseconds, UTC), timestampType, headers. The first batch opens the
    connection. It is closed when the iterator ends or is closed.

    Raises UnknownTopic, OffsetOutOfRange (the log lacks a part of the range), LogGap, CorruptData, AccessDenied,
    Unavailable and InvalidSettings. Raises InvalidRequest if ``start`` is above ``end``, if two arguments give
    different values for one setting, or if ``kafka`` or ``settings`` is not a mapping. Raises ValueError for an unknown
    ``isolation``. A result is never truncated silently: it lacks only offsets of accepted gaps.
    """
    from ..app.opening.connection import FOR_READERS, STORE

    level = Isolation(isolation)
    if start > end:
        raise InvalidRequest("start is above end", topic=topic, partition=partition, start=start, end=end)
    require_mapping("kafka", kafka, '{"bootstrap.servers": "host:9092"}')
    require_mapping("settings", settings, '{"store.endpoint": "https://…"}')
    by_kafka = {f"kafka.{name}": value for name, value in kafka.items()}
    chosen = agreed({"settings": settings or {}, "kafka": by_kafka, "store": {STORE: store}})
    return _records(settings_from({**FOR_READERS, **chosen}), topic, partition, start, end, level)


def _records(
    settings: Settings, topic: str, partition: int, start: int, end: int, isolation: Isolation
) -> Generator[pa.RecordBatch, None, None]:
    from ..app.opening.open import open_connection
    from ..app.opening.partitions import find_partition
    from ..fetch.reader import records

    with open_connection(settings) as connection:
        place = find_partition(connection.control, topic, partition)
        reader = connection.reader(connection.view([place]))
        for piece in reader.scan(topic, partition, start, end, isolation=isolation):
            yield from records(piece, topic, partition, milliseconds=True)
