"""Whether a topic still exists according to one named broker, and whether the broker may hide topics from tierstate.

These rules are from Kafka's `KafkaApis.handleTopicMetadataRequest`. A Metadata request by topic id (version 12, Kafka
3.1) is answered UNKNOWN_TOPIC_ID only if the broker's metadata lacks the id. If the topic exists but the caller may not
DESCRIBE it, the answer is TOPIC_AUTHORIZATION_FAILED: ids are no secrets (seen on 4.3.0). A request by name is refused
if the caller may not DESCRIBE the name, *whether or not the topic exists*. So the answer about a name that no topic has
depends on rights alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.errors import AccessDenied, BrokerUnavailable, UnknownTopic
from ..state.ids import BrokerId, TopicId
from .raw import RawClient

NOBODYS_TOPIC = "tierstate.may.i.describe.every.topic"
"""No ACL has this name or a prefix of it. So DESCRIBE on it needs the right on all topics (or no authorizer)."""


def topic_exists(raw: RawClient, broker: BrokerId, topic_id: TopicId) -> bool:
    """Return whether this broker's metadata has the topic id. The metadata may be old: ask two brokers, twice.

    Raises AccessDenied if the topic exists, but these credentials may not DESCRIBE it. Also raises BrokerUnavailable,
    TimedOut, InvalidRequest.
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

    An ACL that denies one name overrides an ACL that allows all names, so pass every topic that matters. Raises
    BrokerUnavailable, TimedOut.
    """
    names = sorted({NOBODYS_TOPIC, *topics})
    answers = raw.topics_on(broker, names)
    if sorted(topic.name for topic in answers) != names:
        raise BrokerUnavailable("the broker answered about other topics", broker=broker)
    return not any(isinstance(topic.error, AccessDenied) for topic in answers)
