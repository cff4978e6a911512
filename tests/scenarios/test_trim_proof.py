"""A bit flips in the bucket while the broker still has the records: they stay there until the object is right again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.house import eventually, opened_house
from tests.scenarios.test_rescue import copied, flipped
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.extended]
RECORDS = 4_000


@pytest.mark.parametrize("kind", [".log", ".indexes", ".rsm-manifest"])
def test_the_last_copy_on_the_broker_goes_only_when_the_objects_hold_what_was_copied(
    kafka: KafkaSandbox, tmp_path: Path, kind: str
) -> None:
    with opened_house(kafka, tmp_path, f"proof{kind.replace('.', '-')}") as house:
        topic = house.create("orders")
        with house.agent("--set", "trim.delay=1d"):
            house.append(topic, RECORDS)
            eventually(lambda: copied(house, topic))
        segments, before = house.logs(topic), house.digests(topic)
        assert len(segments) > 4
        object_path = next(
            path for path in house.store.rglob(f"*{kind}") if path.name.startswith(f"{segments[2].stem}-")
        )
        flipped(object_path)
        with house.agent():
            eventually(lambda: house.logs(topic)[0] == segments[2])
            eventually(lambda: object_path.name in house.last_error(topic))
            assert house.logs(topic) == segments[2:], "what is proven goes, and nothing behind it"
            flipped(object_path)
            eventually(lambda: house.logs(topic) == segments[-1:])
            assert house.digests(topic) == before
            assert house.holds(topic, RECORDS)
