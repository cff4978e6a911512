from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tierstate.cli.parameter_types import TopicArgument, parse_topic, topic_type
from tierstate.state.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "topic", "partition"),
    [("orders", "orders", None), ("orders:0", "orders", 0), ("a.b_c-d:12", "a.b_c-d", 12)],
)
def test_a_topic_and_a_partition(text: str, topic: str, partition: int | None) -> None:
    argument = parse_topic(text)
    assert argument == TopicArgument(topic, partition)
    assert argument.typed == text


def test_a_partition_is_read_as_kafka_writes_it_and_typed_with_a_colon() -> None:
    assert (str(parse_topic("orders:0")), str(parse_topic("orders"))) == ("orders-0", "orders")
    assert parse_topic("orders-0") == TopicArgument("orders-0", None), "it is a topic's name like any other"
    with pytest.raises(click.UsageError, match="write orders:3, or orders-3:0 if orders-3 is the topic"):
        topic_type("T:P").convert("orders-3", None, None)


@pytest.mark.parametrize(
    "text", ["", ":0", "a:", "a:x", "a:-1", "a:b:0", "..", ".", "a/b", "a b", "é", "a:2147483648", "a" * 250]
)
def test_what_cannot_be_a_topic_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_topic(text)


@pytest.mark.parametrize(
    ("form", "text", "code"),
    [("T:P", "a", 2), ("T:P", "a:0", 0), ("T", "a", 0), ("T", "a:0", 2), ("T[:P]", "a", 0), ("T[:P]", "a:0", 0)],
)
def test_a_command_says_whether_it_takes_a_partition(form: str, text: str, code: int) -> None:
    @click.command()
    @click.argument("where", type=topic_type(form))
    def look(where: TopicArgument) -> None:
        assert where.topic == "a"

    assert CliRunner().invoke(look, [text]).exit_code == code
