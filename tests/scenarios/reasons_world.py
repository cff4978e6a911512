"""One partition of a real broker and the worker of its agent, taken step by step: the reasons that it reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.leader.real import RECORD, Job, RealTopic, eventually
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.leader.status import PartitionStatus
from tierstate.leader.term import TermSession, begin_term, say
from tierstate.rules.reasons import Reason
from tierstate.runtime.operation import run
from tierstate.runtime.settings import Settings
from tierstate.state.epochs import Lineage
from tierstate.state.facts import Fact, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId, FactId, TopicIdPartition
from tierstate.state.lineage import below
from tierstate.state.offsets import Offset
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ObjectStore

ACTS = ("copied", "trimmed", "expired")
MAX_ACTS = 300
SHOWN: dict[Reason, str] = {}
"""Kind to the scenario that produces it."""

Scenario = TypeVar("Scenario", bound=Callable[..., None])


def shows(*kinds: Reason) -> Callable[[Scenario], Scenario]:
    """Declare the reasons that a scenario produces; `Desk.says` fails when it did not."""

    def declare(scenario: Scenario) -> Scenario:
        SHOWN.update(dict.fromkeys(kinds, scenario.__name__))
        return scenario

    return declare


@dataclass
class ReasonTopic(RealTopic):
    """``sections`` are settings besides those of every real topic; ``given`` is a store instead of the folder."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: ObjectStore | None = None

    def settings(self, **trim: Any) -> Settings:
        plain = super().settings(**trim).model_dump(mode="json", by_alias=True, exclude_unset=True)
        for name, section in self.sections.items():
            plain[name] = {**plain.get(name, {}), **section}
        return Settings.model_validate(plain)

    @property
    def store(self) -> ObjectStore:
        return self.given or DirectoryStore(self.store_folder)

    @cached_property
    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.sandbox.bootstrap, "log_level": 0})

    @property
    def folder(self) -> Path:
        return self.sandbox.brokers[0].log_dir / f"{self.name}-0"

    def log(self, base: int) -> Path:
        return self.folder / f"{base:020d}.log"

    def roll(self, segments: int = 2) -> list[int]:
        """Roll until there are so many rolled segments and an active one; return their bases."""
        while len(self.bases()) <= segments:
            self.append(1_700)
        return self.bases()

    def producer(self, **config: Any) -> Any:
        plain = {"bootstrap.servers": self.sandbox.bootstrap, "log_level": 0, "batch.size": 20_000}
        return Producer(plain | config)

    def alter(self, topic: str, **config: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    @contextmanager
    def denied(self, kind: ResourceType, name: str, operation: AclOperation) -> Iterator[None]:
        """Deny this operation to all for the length of the block."""
        acl = (kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY)
        rest = (*acl[:5], AclOperation.ALL, AclPermissionType.ALLOW)
        for binding in (AclBinding(*rest), AclBinding(*acl)):
            self.admin.create_acls([binding])[binding].result(30)
        try:
            yield
        finally:
            for gone in (AclBindingFilter(*acl), AclBindingFilter(*rest)):
                self.admin.delete_acls([gone])[gone].result(30)

    @contextmanager
    def desk(self, index: int = 0, **trim: Any) -> Iterator[Desk]:
        with self.agent(index, **trim) as job:
            yield Desk(self, job, job.leader.new_worker(self.partition(job.broker), self.name))


@dataclass
class Desk:
    """The agent's worker of the partition."""

    topic: ReasonTopic
    job: Job
    worker: PartitionWorker

    @property
    def partition(self) -> TopicIdPartition:
        return self.worker.partition

    @property
    def status(self) -> PartitionStatus:
        return self.job.leader.board.by_partition()[self.partition]

    def work(self) -> PartitionStatus:
        """Work until there is nothing to do, or something failed."""
        for _ in range(MAX_ACTS):
            if not self.worker.advance():
                return self.status
        raise AssertionError("it never comes to an end")

    def says(self, act: str, kind: Reason, sentence: str) -> PartitionStatus:
        """Work until the status has this kind for what is not copied, trimmed or expired; then checks its sentence.

        ``sentence``: a regular expression that the whole sentence must match.
        """
        assert act in ACTS
        try:
            eventually(lambda: getattr(self.work(), f"not_{act}_reason") == kind, seconds=40)
        except AssertionError as error:
            raise AssertionError(f"{kind} never came: {self.status}") from error
        text = getattr(self.status, f"not_{act}")
        assert re.fullmatch(sentence, text), text
        print(f"{kind.value}: {text}")
        return self.status

    def begin(self) -> TermSession:
        """Begin a term of this agent by hand."""
        return run(begin_term(self.job.leader.context, self.partition, self.topic.name))

    def say(self, fact: Fact) -> None:
        """Append a fact that no term writes."""
        say(self.job.leader.context.topic, self.job.view, self.partition, fact)

    def append(self, key: str, value: bytes | None) -> None:
        number = self.job.view.tier_partition(self.partition)
        position = self.job.leader.context.topic.append(number, key, value)
        self.job.view.wait_applied(number, position, 30)

    def fact_id(self) -> FactId:
        return FactId.of(self.job.leader.context.ids.uuid())

    def order(self, kind: OrderKind, before: int | None = None, *, version: int = 2) -> OperatorOrder:
        cut, lineage = None if before is None else Offset(before), Lineage()
        if cut is not None and version > 1:
            lineage = below(self.job.view.partition(self.partition).lineage, cut)
        order = OperatorOrder(self.partition, self.fact_id(), kind, cut, False, "ops@desk", self.now(), lineage)
        self.say(order)
        return order

    def now(self) -> Any:
        return self.job.leader.context.clock.now_ms()

    @property
    def broker_id(self) -> BrokerId:
        return self.job.leader.context.broker_id


def transaction(topic: ReasonTopic, records: int) -> Any:
    """Open a transaction with so many records in the log. Abort it afterwards."""
    producer = topic.producer(**{"transactional.id": f"tx-{topic.name}", "acks": "all"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic.name, RECORD % number, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    return producer


NewReasonTopic = Callable[..., ReasonTopic]
"""`ReasonTopic.create`, with ``sections`` first."""


def patch(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)
