"""Open a listening proxy, from settings and the caller's reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from ..broker.client_config import bootstrap_addresses, in_their_name
from ..broker.framed_socket import tls_context
from ..fetch.reader import LogReader
from ..runtime.appended_lines import AppendedLines
from ..runtime.clock import Clock
from ..runtime.metrics import Metrics
from ..runtime.settings import Settings
from ..state.errors import InvalidSettings
from .group_offsets import GroupOffsets
from .principals import Principals
from .read_log import ReadLog
from .replica_answers import Bucket
from .server import BrokerAddress, Brokers, ProxyServer, Warn

OFFSETS = "groups.sqlite"
"""The file of the groups' offsets, in the proxy's folder of ``state_dir``."""


@contextmanager
def open_proxy(
    reader: LogReader, nodes: Mapping[int, BrokerAddress], settings: Settings, clock: Clock, warn: Warn
) -> Iterator[ProxyServer]:
    """Open a proxy, and close it after the `with` block. ``nodes``: the current brokers' addresses, by node id.

    Raises InvalidSettings for an address in use, unusable TLS files, or an access log that cannot be written. Also
    raises it if other machines could read a bucket without a login.
    """
    path = settings.proxy.access_log
    with ExitStack() as opened:
        if settings.view.source == "bucket":
            brokers = Brokers(bucket=_open_bucket(reader, settings, warn, opened))
        else:
            kafka = in_their_name(settings.kafka)
            brokers = Brokers(bootstrap_addresses(kafka), nodes, tls_context(kafka))
        lines = None if path is None else opened.enter_context(closing(AppendedLines(path, "proxy.access_log", warn)))
        log = ReadLog(None if lines is None else lines.write, clock)
        whole_log = settings.view.source == "kip405"
        made = ProxyServer(reader, brokers, settings.proxy, clock, log, warn, whole_log=whole_log)
        server = opened.enter_context(closing(made))
        yield server


def _open_bucket(reader: LogReader, settings: Settings, warn: Warn, opened: ExitStack) -> Bucket:
    users, listen = settings.proxy.principals, settings.proxy.listen
    if users is None and not listen.of_this_machine:
        problem = f"other machines can reach {listen} without a login: set proxy.principals"
        raise InvalidSettings([f"proxy.listen: {problem}"])
    rights = None if users is None else Principals(users)
    offsets = opened.enter_context(closing(GroupOffsets(settings.state_dir / "proxy" / OFFSETS)))
    return Bucket(reader, reader.cluster_id, offsets, rights, warn)


def feed_proxy_metrics(metrics: Metrics, server: ProxyServer) -> None:
    """Register the counters of ``server`` with Prometheus."""
    counts, budget = server.counts, server.budget
    metrics.tally("tierstate_proxy_passed_bytes_total", lambda: [((), counts.passed_bytes)])
    metrics.tally("tierstate_proxy_passed_partitions_total", lambda: [((), counts.passed)])
    metrics.tally("tierstate_proxy_filled_bytes_total", lambda: [((), counts.filled_bytes)])
    metrics.tally("tierstate_proxy_filled_partitions_total", lambda: [((), counts.filled)])
    metrics.tally("tierstate_proxy_not_yet_total", lambda: [((), counts.not_yet)])
    metrics.tally("tierstate_proxy_errors_total", lambda: [((str(code),), n) for code, n in counts.errors.items()])
    metrics.tally("tierstate_proxy_turned_away_total", lambda: [((), counts.turned_away + counts.malformed)])
    metrics.gauge("tierstate_proxy_connections", lambda: [((), counts.connections)])
    metrics.gauge("tierstate_proxy_memory_bytes", lambda: [((), budget.used)])
