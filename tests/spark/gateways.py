"""Gateways over the tiers of `tiers.py`, that plan for readers without a key to the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.spark.tiers import Tiers
from tierstate.api.open import GatewayServer, open_gateway
from tierstate.app.opening.connection import Connection
from tierstate.app.operating.plans import Plans, plans_of
from tierstate.fetch.gateway import GatewayClient
from tierstate.fetch.gateway_plans import GatewayGrants, GatewayTier, asked_plan
from tierstate.fetch.granted_objects import GrantedObjects
from tierstate.fetch.piece import records
from tierstate.fetch.planned_split import PlannedSplit
from tierstate.fetch.split import read_split
from tierstate.follower.follower import Follower
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings_load import settings_from
from tierstate.state.routing import Isolation, Tier


@dataclass
class PlanningGateway:
    url: str
    server: GatewayServer
    view: Follower
    plans: Plans


@contextmanager
def planning_gateway(tiers: Tiers, given: dict[str, object] | None = None, **gateway: Any) -> Iterator[PlanningGateway]:
    """``given`` are settings of the store and the like, where they are not those of ``tiers``."""
    settings = settings_from(
        {
            "kafka.bootstrap.servers": tiers.kafka.bootstrap,
            "store.url": tiers.folder.as_uri(),
            "tier_state.topic": tiers.tier_state_topic,
            "tier_state.partitions": 4,
            "tier_state.replication_factor": 1,
        }
        | (given or {})
    )
    clock = SystemClock()
    with Connection(settings, clock) as connection:
        view = connection.view()
        reader = connection.reader(view)
        plans = plans_of(connection, reader, view)
        settings_of_gateway = Gateway(listen=Address("127.0.0.1", 0), **gateway)
        with closing(open_gateway(reader, settings_of_gateway, clock, [tiers.tier_state_topic], plans=plans)) as server:
            process = server.process()
            process.start()
            yield PlanningGateway(server.url, server, view, plans)
            process.stop()
            assert process.join(20)
            assert process.failure is None


def splits_of(client: GatewayClient, topic: str, partitions: int = 2, lease_s: float = 60.0) -> list[PlannedSplit]:
    ranges = {
        (topic, partition): client.extent(topic, partition, Isolation.READ_COMMITTED, Tier.AUTO)
        for partition in range(partitions)
    }
    _, splits = asked_plan(client, ranges, Isolation.READ_COMMITTED, Tier.PREFER_REMOTE, lease_s)
    return [each.whole for each in splits]


def read_through(
    url: str, topic: str, partitions: int = 2, *, ca: Path | None = None, lease_s: float = 60.0
) -> list[tuple[int, int, Any]]:
    """Return partition, offset and value of all committed records."""
    client = GatewayClient(url, ca=ca)
    splits = splits_of(client, topic, partitions, lease_s)
    segments = [part.segment for split in splits for part in split.parts if part.segment is not None]
    grants = GatewayGrants(client, splits[0].plan)
    objects = GrantedObjects(segments, grants, SystemClock())
    rows = []
    for split in splits:
        for piece in read_split(split, objects, GatewayTier(client), keys=objects):
            for batch in records(piece, topic, split.partition):
                columns = batch.to_pydict()
                rows += [(split.partition, *each) for each in zip(columns["offset"], columns["value"], strict=True)]
    grants.close()
    client.close()
    return rows
