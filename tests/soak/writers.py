"""Producers that go on whatever happens: an idempotent one for each topic, and one that writes in transactions."""

from __future__ import annotations

import functools
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.soak.truth import ABORTED, COMMITTED, OPEN, UNKNOWN, Truth, key_of, value_of

NUMBERS = itertools.count(1)
QUEUED = 2_000
"""The most records in flight."""
ABORTS = 0.25
PATIENCE_S = 120.0
TRANSACTION_MS = 300_000
"""Longer than any disturbance: a transaction that times out at the broker is fatal for its producer."""


class SoakWriter:
    """The one thread that writes its topic. `rest` holds it with no record in flight; `go_on` lets it continue."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float, truth: Truth, seed: int) -> None:
        """``rate``: records a second, over all partitions."""
        self.topic, self.partitions, self.rate, self.truth = topic, partitions, rate, truth
        self.random = random.Random(f"{seed} {topic}")
        self.config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "message.timeout.ms": 600_000,
            "linger.ms": 50,
            "batch.size": 8_000,
            "retry.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
        }
        self.failed: BaseException | None = None
        self.restarts = 0
        self.client: Any = None
        self._going, self._resting, self._over = threading.Event(), threading.Event(), threading.Event()
        self._going.set()
        self._thread = threading.Thread(target=self._run, name=f"writer of {topic}", daemon=True)

    def start(self) -> SoakWriter:
        self._thread.start()
        return self

    def rest(self) -> None:
        """Wait until all records are acknowledged and no transaction is open. Raises TimeoutError if it hangs."""
        if not self._thread.is_alive():
            return
        self._resting.clear()
        self._going.clear()
        if not self._resting.wait(PATIENCE_S):
            self._going.set()
            raise TimeoutError(f"the writer of {self.topic} does not come to rest: {self.failed or 'no answer'}")

    def go_on(self) -> None:
        self._going.set()

    def stop(self) -> None:
        self._over.set()
        self._going.set()
        self._thread.join(10)

    # -----------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.client = Producer(self.config)

    def turn(self) -> None:
        """Send about half a second of records."""
        for _ in range(max(1, int(self.rate / 2))):
            self.send()
        self.client.poll(0)

    def come_to_rest(self) -> None:
        while self.client.flush(1) and not self._over.is_set():
            pass

    def reopen(self) -> None:
        """Open again after a fatal error. Records in flight are reported as failed, or were never sent."""
        self.restarts += 1
        self.client.purge()
        until = time.monotonic() + 5
        while len(self.client) and time.monotonic() < until:
            with suppress(KafkaException):  # it reports its end once more
                self.client.poll(0.1)
        self.open()

    def send(self) -> int:
        number, place = next(NUMBERS), (self.topic, self.random.randrange(self.partitions))
        while len(self.client) > QUEUED and not self._over.is_set():
            self.client.poll(0.1)
        hear = functools.partial(self._heard, number)
        try:
            self.client.produce(place[0], value_of(number), key_of(number), partition=place[1], on_delivery=hear)
        except BufferError:
            self.client.poll(0.5)
        return number

    def _heard(self, number: int, error: Any, message: Any) -> None:
        place = (message.topic(), message.partition())
        if error is None:
            self.truth.acknowledged(place, number, message.offset(), message.timestamp()[1])
        else:
            self.truth.unanswered(place, number)

    def _run(self) -> None:
        try:
            self.open()
            while not self._over.is_set():
                if not self._going.is_set():
                    self.come_to_rest()
                    self._resting.set()
                    self._going.wait()
                    continue
                began = time.monotonic()
                try:
                    self.turn()
                except KafkaException as error:
                    if not error.args[0].fatal():
                        raise
                    self.reopen()
                while (left := began + 0.5 - time.monotonic()) > 0 and not self._over.is_set():
                    self.client.poll(min(left, 0.1))
        except BaseException as error:  # reported by the soak, which fails with it
            self.failed = error
            raise


class TransactionWriter(SoakWriter):
    """A writer whose every turn is a transaction; a quarter of them is aborted."""

    committed = aborted = unknown = 0

    def open(self) -> None:
        name = self.config.setdefault("transactional.id", f"soak-{uuid.uuid4().hex[:8]}")
        limits = {"message.timeout.ms": TRANSACTION_MS, "transaction.timeout.ms": TRANSACTION_MS}
        self.client = Producer(self.config | limits | {"transactional.id": name})
        self._until_done(lambda: self.client.init_transactions(10))

    def turn(self) -> None:
        name = next(NUMBERS)
        self.truth.fates[name] = OPEN
        commit = False
        try:
            self.client.begin_transaction()
            for _ in range(self.random.randint(1, max(2, int(self.rate)))):
                self.truth.transaction_of[self.send()] = name
            commit = self.random.random() >= ABORTS
            if commit:
                self._until_done(lambda: self.client.commit_transaction(10))
            else:
                self._until_done(lambda: self.client.abort_transaction(10))
            self._ended(name, COMMITTED if commit else ABORTED)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._until_done(lambda: self.client.abort_transaction(10))
                self._ended(name, ABORTED)
                return
            self._ended(name, UNKNOWN if commit else ABORTED)  # the next init_transactions ends it, either way
            self.reopen()

    def come_to_rest(self) -> None:
        """Do nothing: between two transactions no record is in flight."""

    def _ended(self, name: int, fate: str) -> None:
        self.truth.fates[name] = fate
        setattr(self, fate, getattr(self, fate) + 1)

    def _until_done(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._over.is_set():
                    raise
                time.sleep(0.1)
