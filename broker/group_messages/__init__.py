"""Requests about groups that kafka-python does not have: their formats are the JSON files in this folder.

The fields are those of Kafka 4.3 (`clients/src/main/resources/common/message`), in the lowest version that it answers.
"""

from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    return type(ApiMessage)(name, (ApiMessage,), {"__module__": __name__}, load_json=__name__)


ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse = _message("ConsumerGroupDescribeResponse")
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse = _message("DescribeShareGroupOffsetsResponse")
ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
ShareGroupDescribeResponse = _message("ShareGroupDescribeResponse")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
StreamsGroupDescribeResponse = _message("StreamsGroupDescribeResponse")
