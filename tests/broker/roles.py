"""The rights of each role in Kafka, as docs/operations.md shows them. A test runs each command with only these."""

from __future__ import annotations

from tierstate.broker.acls import AGENT, TO_BACK_UP, Resource, rights_on

READER = (
    *rights_on(
        Resource.TIER_STATE,
        read="facts are read",
        describe="its end and its leaders are asked for",
        describe_configs="a topic that is not safe is refused",
    ),
    *rights_on(
        Resource.TOPICS,
        read="what is not yet in the bucket is read from the broker",
        describe="bounds and leaders are asked for",
        describe_configs="`describe` says why a topic is not tiered",
    ),
)
"""For the gateway, commands that only read, `read_records` and Spark. They join no group and commit nothing."""

OPERATOR = (*READER, *rights_on(Resource.TIER_STATE, write="what people say is a fact"))
"""For commands that give orders, settle, release or recover."""

INIT = (*OPERATOR, *rights_on(Resource.TIER_STATE, create="`tierstate init` makes it"))

_OF_AGENT = {(right.resource, right.operation) for right in AGENT}
ONLY_TO_BACK_UP = tuple(right for right in TO_BACK_UP if (right.resource, right.operation) not in _OF_AGENT)

ROLES = {
    "agent": AGENT,
    "in addition, for complete [backups](restore.md#backups)": ONLY_TO_BACK_UP,
    "gateway, commands that look, `read_records`, Spark": READER,
    "in addition: [orders](#orders), `settle`, `accept-gap`, `release`, `undelete`, `leases --end`, `recover`": tuple(
        right for right in OPERATOR if right not in READER
    ),
    "in addition: `tierstate init`": tuple(right for right in INIT if right not in OPERATOR),
}
"""The rows of the table. A role "in addition" has only the rights that it adds to those of the role above."""


def table() -> str:
    """Return the Markdown table of docs/operations.md."""
    rows = ["| who | on | needs | for |", "|---|---|---|---|"]
    for who, rights in ROLES.items():
        for resource in Resource:
            matching = [right for right in rights if right.resource is resource]
            if matching:
                names = ", ".join(right.operation.name for right in matching)
                rows.append(f"| {who} | {resource.value} | {names} | {'; '.join(right.why for right in matching)} |")
    return "\n".join(rows)
