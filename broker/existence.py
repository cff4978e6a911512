"""Whether a topic still exists: what one named broker says, and whether it may hide anything from us.

Kafka's `KafkaApis.handleTopicMetadataRequest`: a Metadata request by topic id (version 12, Kafka 3.1) is answered
UNKNOWN_TOPIC_ID only when that broker's metadata has no such id; an id it has, but which the caller may not DESCRIBE,
is answered TOPIC_AUTHORIZATION_FAILED (ids are not taken for secrets; seen on 4.3.0). A request by name is the other
way round: what the caller may not DESCRIBE is refused *whether or not it exists*. So a name that nobody has tells of
rights alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.errors import AccessDenied, BrokerUnavailable, UnknownTopic
from ..state.ids import BrokerId, TopicId
from .raw import RawClient

NOBODYS_TOPIC = "tierstate.may.i.describe.every.topic"
"""No ACL names it and no prefix of ours covers it, so only a right to DESCRIBE all topics does (or no authorizer)."""


def topic_exists(raw: RawClient, broker: BrokerId, topic_id: TopicId) -> bool:
    """What this very broker's metadata says, by id. It may be behind: ask two, twice.

    AccessDenied: the topic exists, and these credentials may not see it. BrokerUnavailable, TimedOut, InvalidRequest.
    """
    found = raw.topics_on(broker, [topic_id])
    if len(found) != 1 or found[0].topic_id != topic_id:
        raise BrokerUnavailable("the broker answered about another topic", broker=broker, topic_id=topic_id)
    error = found[0].error
    if isinstance(error, UnknownTopic):
        return False
    if error is not None and not isinstance(error, BrokerUnavailable):
        raise error
    return True  # a topic without a leader is one too


def may_describe(raw: RawClient, broker: BrokerId, topics: Sequence[str]) -> bool:
    """Whether these credentials may DESCRIBE these topics, which need not exist, and every other.

    An ACL that denies one name beats the one that allows all: name every topic that matters. Raises BrokerUnavailable,
    TimedOut.
    """
    wanted = sorted({NOBODYS_TOPIC, *topics})
    found = raw.topics_on(broker, wanted)
    if sorted(topic.name for topic in found) != wanted:
        raise BrokerUnavailable("the broker answered about other topics", broker=broker)
    return not any(isinstance(topic.error, AccessDenied) for topic in found)
