"""A topic for each kind of ACL binding, wholly in the remote tier: users without the right must get nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from tests.broker.guarded import allow, binding
from tests.broker.roles import READER
from tests.scenarios.house import House, eventually
from tests.scenarios.test_acls import permit

RECORDS = 600
BY_PREFIX = "by-"
"""Topics whose names begin with this may be read by ``guest``."""
Bound = Sequence[tuple[AclOperation, AclPermissionType]]


def copy_bound_topics(house: House, topics: Mapping[str, Bound]) -> None:
    """Copy and trim ``topics``. ``guest`` is bound to each by its value; ``reader`` has a reader's rights to all."""
    sandbox = house.kafka
    for name, bound in topics.items():
        topic = house.create(name, internal_segment_bytes="20000")
        house.append(topic, RECORDS)
        permit(house, "reader", READER, topic)
        if bound:
            allow(sandbox, [binding("guest", ResourceType.TOPIC, topic, what, how) for what, how in bound])
    prefix, pattern = f"{house.name}-{BY_PREFIX}", ResourcePatternType.PREFIXED
    allowed = AclPermissionType.ALLOW
    allow(sandbox, [AclBinding(ResourceType.TOPIC, prefix, pattern, "User:guest", "*", AclOperation.READ, allowed)])
    with house.agent():
        eventually(lambda: all(len(house.logs(f"{house.name}-{name}")) == 1 for name in topics))
