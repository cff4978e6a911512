"""Requests that kafka-python does not have: their formats are the JSON files in this folder.

The fields are those of Kafka 4.3 (`clients/src/main/resources/common/message`), for groups in the lowest version that
it answers.
"""

from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    return type(ApiMessage)(name, (ApiMessage,), {"__module__": __name__}, load_json=__name__)


ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
CreateDelegationTokenRequest = _message("CreateDelegationTokenRequest")
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
_NAMES = "ConsumerGroupDescribe CreateDelegationToken DescribeShareGroupOffsets ShareGroupDescribe StreamsGroupDescribe"
_RESPONSES = [_message(f"{name}Response") for name in _NAMES.split()]
"""kafka-python finds them by the request, and only while they are referenced."""
