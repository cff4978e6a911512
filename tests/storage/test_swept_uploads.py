"""On a real store, the parts of a dead attempt's upload are deleted, those of a living one and of others are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.leader.orphans import GRACE_S, KEYS, Late
from tests.leader.world import World
from tierstate.leader.sweeper import OrphanSweeps
from tierstate.runtime.clock import SystemClock
from tierstate.state.ids import RemoteSegmentId, TopicId
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store


def test_only_a_dead_attempts_parts_are_aborted(versitygw_endpoint: str, versitygw_bucket: str, tmp_path: Path) -> None:
    store = S3Store(
        versitygw_bucket, "a/b", StoreOptions(versitygw_endpoint, "us-east-1", credentials=("test", "test"))
    )
    world = World(tmp_path, "none", {"local.retention.bytes": "0"})
    late = Late(world)
    late.tools = replace(late.tools, store=store)
    late.watch = OrphanSweeps(late.process.context, world.partition, world.name, late.tools)
    base = KEYS.partition_prefix(world.name, world.topic_id, 0)
    unknown = KEYS.base_key(world.name, world.topic_id, 0, 5, RemoteSegmentId.of(b"u" * 16))
    other = KEYS.base_key(world.name, TopicId.of(b"o" * 16), 0, 0, late.gone.segment_id)
    log_key = object_key(late.gone.object_key, ObjectKind.LOG)
    keys = [log_key, object_key(unknown, ObjectKind.LOG), object_key(other, ObjectKind.LOG), f"{base}stray"]
    for key in keys:
        begun = store.client.create_multipart_upload(Bucket=versitygw_bucket, Key=f"a/b/{key}")
        store.client.upload_part(
            Bucket=versitygw_bucket, Key=f"a/b/{key}", UploadId=begun["UploadId"], PartNumber=1, Body=b"part"
        )
    world.clock.advance((SystemClock().now_ms() - world.clock.now_ms()) / 1000)
    late.ripen()
    late.sweep()
    assert len(list(store.unfinished_uploads())) == 4, "begun less than a grace ago"
    world.clock.advance(GRACE_S)
    late.ripen()
    late.sweep()
    assert sorted(each.key for each in store.unfinished_uploads()) == sorted(keys[1:])
    world.close()
    store.close()
