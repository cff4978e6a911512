"""A real Kafka cluster of one or three brokers, which runs during a ``with`` block.

    with KafkaSandbox() as kafka:
        kafka.bootstrap                    # "127.0.0.1:23817"
        kafka.brokers[0].log_dir           # Kafka's own files

All broker processes end at the end of the block, on Ctrl-C, and (on Linux) when this process is killed.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from ..state.errors import InvalidRequest
from .artifacts import NEWEST, Progress, committed_sums, find_java, kafka_libs
from .ports import PortLease
from .process import PROPERTIES, BrokerProcess
from .properties import BrokerAddress, broker_properties, write_properties

READY_SECONDS = 240.0


class KafkaSandbox:
    """Brokers on free loopback ports, in a folder of their own.

    ``release`` is one of `artifacts.RELEASES`. ``folder`` is kept with everything in it. None creates a temporary
    folder that is removed at the end (except for logs if the block ends in an error). ``properties`` are added to
    those of every broker. If they require TLS or SASL, ``client`` has the settings to connect (librdkafka's names).
    ``tethered=False`` leaves the brokers running when this process ends (`detached.py`).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        release: str = NEWEST,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
        tethered: bool = True,
        progress: Progress | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise InvalidRequest("a sandbox has 1 or 3 brokers", brokers=brokers)
        committed_sums(release)  # raises for an unknown release before anything is started
        self.release = release
        self._count = brokers
        self._user_folder = folder
        self._properties = dict(properties or {})
        self._client = dict(client or {})
        self._progress = progress
        self._ports = PortLease()
        # The thread that starts every broker. It must live as long as this object: the brokers die with it (tether.py).
        self._starter = ThreadPoolExecutor(1, "sandbox-starter") if tethered else None
        self.folder = Path()
        self.cluster_id = ""
        self.brokers: Sequence[BrokerProcess] = ()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, in the form of ``bootstrap.servers``."""
        return ",".join(str(broker.address) for broker in self.brokers)

    @property
    def client_config(self) -> dict[str, str]:
        """The ``[kafka]`` settings to connect to these brokers."""
        return {"bootstrap.servers": self.bootstrap, **self._client}

    def open(self) -> Self:
        """Start all brokers at once. Returns when each broker answers and lists the others."""
        java, libs = find_java(), kafka_libs(self._progress, self.release)
        self.folder = (self._user_folder or Path(tempfile.mkdtemp(prefix="tierstate-kafka-"))).resolve()
        try:
            self._prepare(java, libs)
            with ThreadPoolExecutor(self._count) as pool:
                list(pool.map(lambda broker: broker.format(self.cluster_id), self.brokers))
            for broker in self.brokers:
                broker.launch()
            self._wait_ready(self.brokers)
        except BaseException:
            self.close(keep_logs=True)
            raise
        return self

    def kill(self, index: int) -> None:
        """Kill a broker with SIGKILL, as if its machine lost power."""
        self.brokers[index].kill()

    def stop(self, index: int) -> None:
        """Shut a broker down cleanly."""
        self.brokers[index].stop()

    def start(self, index: int) -> None:
        """Start a killed or stopped broker again, with the same port and folder. Returns when it answers."""
        self.brokers[index].launch()
        self._wait_ready([self.brokers[index]])

    def close(self, *, keep_logs: bool = False) -> None:
        """End every broker: with a clean shutdown if the folder is the user's, else with SIGKILL.

        A temporary folder is removed; ``keep_logs`` keeps it and removes only Kafka's data.
        """
        if self._user_folder is not None:
            with ThreadPoolExecutor(self._count) as pool:
                list(pool.map(BrokerProcess.stop, self.brokers))
        for broker in self.brokers:
            broker.kill()
        if self._starter is not None:
            self._starter.shutdown()
        self._ports.release()
        if self._user_folder is None and self.folder != Path():
            for path in [broker.log_dir for broker in self.brokers] if keep_logs else [self.folder]:
                shutil.rmtree(path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep_logs=error is not None)

    def _prepare(self, java: str, libs: Path) -> None:
        node_ids = range(1, self._count + 1)
        addresses = [BrokerAddress(node_id, self._ports.take(), self._ports.take()) for node_id in node_ids]
        self.cluster_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15))[:22].decode()  # never "-" first: an option
        self.brokers = tuple(
            BrokerProcess(address, self.folder / f"broker-{address.node_id}", java, libs, self._starter)
            for address in addresses
        )
        for broker in self.brokers:
            broker.folder.mkdir(parents=True)
            properties = broker_properties(broker.address, addresses, broker.log_dir, self._properties)
            write_properties(broker.folder / PROPERTIES, properties)

    def _wait_ready(self, brokers: Sequence[BrokerProcess]) -> None:
        expected = sum(broker.pid is not None for broker in self.brokers)
        deadline = time.monotonic() + READY_SECONDS
        for broker in brokers:
            broker.wait_ready(expected if expected == self._count else 1, deadline, self._client)
