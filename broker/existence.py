"""Whether a topic still exists: the answer of one named broker, and whether it may hide topics from us.

Kafka's `KafkaApis.handleTopicMetadataRequest`: a Metadata request by topic id (version 12, Kafka 3.1) is answered
UNKNOWN_TOPIC_ID only when that broker's metadata has no such id; an id it has, but which the caller may not DESCRIBE,
is answered TOPIC_AUTHORIZATION_FAILED (ids are not treated as secrets; seen on 4.3.0). A request by name is the other
way round: a name that the caller may not DESCRIBE is refused *whether or not it exists*. So the answer about a name
that no topic has depends on rights alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.errors import AccessDenied, BrokerUnavailable, UnknownTopic
from ..state.ids import BrokerId, TopicId
from .raw import RawClient

NOBODYS_TOPIC = "tierstate.may.i.describe.every.topic"
"""No ACL names it and no prefix of ours covers it, so it takes a right to DESCRIBE all topics (or no authorizer)."""


def topic_exists(raw: RawClient, broker: BrokerId, topic_id: TopicId) -> bool:
    """Return whether this broker's metadata has the topic id. It may be behind: ask two brokers, twice.

    Raises AccessDenied (it exists, but these credentials may not see it), BrokerUnavailable, TimedOut, InvalidRequest.
    """
    answers = raw.topics_on(broker, [topic_id])
    if len(answers) != 1 or answers[0].topic_id != topic_id:
        raise BrokerUnavailable("the broker answered about another topic", broker=broker, topic_id=topic_id)
    error = answers[0].error
    if isinstance(error, UnknownTopic):
        return False
    if error is not None and not isinstance(error, BrokerUnavailable):
        raise error
    return True  # a topic without a leader exists too


def may_describe(raw: RawClient, broker: BrokerId, topics: Sequence[str]) -> bool:
    """Return whether these credentials may DESCRIBE these topics, which need not exist, and every other topic.

    An ACL that denies one name overrides one that allows all: pass every topic that matters. Raises BrokerUnavailable,
    TimedOut.
    """
    names = sorted({NOBODYS_TOPIC, *topics})
    answers = raw.topics_on(broker, names)
    if sorted(topic.name for topic in answers) != names:
        raise BrokerUnavailable("the broker answered about other topics", broker=broker)
    return not any(isinstance(topic.error, AccessDenied) for topic in answers)
