"""One store of several: it keeps every promise of a store, and loses no object when a rule comes later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.verdicts import PROMISES
from tierstate.state.errors import UNNAMED_STORE, ObjectNotFound, StorageUnavailable
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.objects import UnfinishedUpload
from tierstate.state.offsets import ByteRange
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore, SignsReads
from tierstate.storage.routed import RoutedStore
from tierstate.storage.s3 import S3Store
from tierstate.storage.segment.log_chunks import NearStore

ID = "MWJ6FHTfRYy67jzwZdeqSQ"
NAME = "00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
AUDIT, ORDERS, HEARTBEAT = f"audit-{ID}/0/{NAME}", f"orders-{ID}/0/{NAME}", "_tierstate/agents/x"


@pytest.fixture
def default() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def own(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "audit", make=True)


@pytest.fixture
def routed(default: MemoryStore, own: DirectoryStore) -> RoutedStore:
    return RoutedStore(default, [("audit.*", own)], ObjectKeys())


@pytest.mark.parametrize("place", [f"audit-{ID}/0/", "contract/"])
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_the_store_keeps_its_promise(
    routed: RoutedStore, default: MemoryStore, own: DirectoryStore, promise: Promise, place: str
) -> None:
    promise.check(routed, place)
    routed_there, other = (own, default) if place.startswith("audit") else (default, own)
    assert list(other.list()) == []
    assert list(routed.list()) == list(routed_there.list())


@pytest.mark.extended
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_a_store_of_topics_on_s3_keeps_its_promise(
    s3_store: S3Store, default: MemoryStore, promise: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    if promise.name in ("one of many writers wins", "a replacement is refused when the object changed"):
        pytest.skip("moto looks at the object and then writes")
    monkeypatch.setattr("tierstate.storage.contract_listings.MORE_THAN_A_PAGE", 50)
    promise.check(RoutedStore(default, [("audit.*", s3_store)], ObjectKeys("pfx/")), f"pfx/audit-{ID}/0/")
    assert list(default.list()) == []


def test_new_objects_go_to_the_first_rule_that_matches_and_all_that_is_no_segment_to_the_default_store(
    default: MemoryStore, own: DirectoryStore
) -> None:
    second = MemoryStore()
    routed = RoutedStore(default, [("aud.t", second), ("audit.*", own)], ObjectKeys("pfx-"))
    keys = {f"pfx-{AUDIT}": second, f"pfx-audit-2-{ID}/0/{NAME}": own, f"pfx-{ORDERS}": default, HEARTBEAT: default}
    for key in keys:
        routed.put_if_absent(key, b"x")
    for store in (default, own, second):
        assert [info.key for info in store.list()] == sorted(key for key, there in keys.items() if there is store)


def test_objects_that_were_there_before_the_rule_are_read_listed_and_deleted(
    routed: RoutedStore, default: MemoryStore, own: DirectoryStore
) -> None:
    later = AUDIT.replace("1234-", "1235-")
    default.put_if_absent(AUDIT, b"before")
    default.put_if_absent(ORDERS, b"orders")
    default.put_if_absent(HEARTBEAT, b"beat")
    routed.put_if_absent(later, b"later")
    own.put_if_absent("_tierstate/part-of", b"pair")
    assert (routed.get(AUDIT), routed.get(later)) == (b"before", b"later")
    assert b"".join(routed.stream_range(AUDIT, ByteRange(2, 6), 1)) == b"fore"
    assert routed.head(AUDIT).size == 6
    assert [info.key for info in routed.list()] == [HEARTBEAT, AUDIT, later, ORDERS]
    assert [info.key for info in routed.list(f"audit-{ID}/0/", start_after=AUDIT)] == [later]
    assert routed.replace_if_same(AUDIT, b"rotate", b"before")
    assert default.get(AUDIT) == b"rotate"
    own.put_if_absent(AUDIT, b"rotate")  # as while it is moved
    assert [info.key for info in routed.list(f"audit-{ID}/")] == [AUDIT, later]
    routed.delete(AUDIT)
    default.put_if_absent(later, b"later")
    routed.delete_many(iter([later, ORDERS]))
    assert [info.key for info in routed.list()] == [HEARTBEAT]
    with pytest.raises(ObjectNotFound):
        routed.get(AUDIT)


def test_a_key_of_another_prefix_is_found_in_the_store_of_any_rule_that_may_be_its_own(
    default: MemoryStore, own: DirectoryStore
) -> None:
    RoutedStore(default, [("audit.*", own)], ObjectKeys("{salt}/old-", salt_bits=3)).put_if_absent(
        f"010/old-{AUDIT}", b"x"
    )
    assert own.get(f"010/old-{AUDIT}") == b"x"
    routed = RoutedStore(default, [("audit.*", own)], ObjectKeys())
    assert routed.get(f"010/old-{AUDIT}") == b"x"
    routed.delete(f"010/old-{AUDIT}")
    assert list(own.list()) == []


class Moving(MemoryStore):
    """A store whose object moves to ``target`` when it was just looked for there."""

    target: ObjectStore

    def get(self, key: str, limit: int | None = None) -> bytes:
        self.target.put_if_absent(key, super().get(key))
        self.delete(key)
        return super().get(key, limit)


def test_an_object_that_moves_between_both_looks_is_found(own: DirectoryStore) -> None:
    source = Moving()
    source.target = own
    source.put_if_absent(AUDIT, b"x")
    assert RoutedStore(source, [("audit", own)], ObjectKeys()).get(AUDIT) == b"x"


class Away(MemoryStore):
    def __getattribute__(self, name: str) -> object:
        if name in ("get", "head", "list", "delete", "delete_many", "unfinished_uploads"):
            raise StorageUnavailable("away")
        return super().__getattribute__(name)


def test_a_store_of_topics_that_is_away_stops_no_other_topic(default: MemoryStore) -> None:
    routed = RoutedStore(default, [("audit", Away())], ObjectKeys())
    routed.put_if_absent(ORDERS, b"x")
    assert routed.get(ORDERS) == b"x"
    assert [info.key for info in routed.list(f"orders-{ID}/0/")] == [ORDERS]
    assert list(routed.list("_tierstate/")) == []
    assert list(routed.unfinished_uploads(f"orders-{ID}/0/")) == []
    routed.delete_many([ORDERS])
    with pytest.raises(StorageUnavailable):
        routed.get(AUDIT)


def test_uploads_are_aborted_where_they_are(default: MemoryStore, s3_store: S3Store) -> None:
    routed = RoutedStore(default, [("audit", s3_store)], ObjectKeys())
    full = s3_store.full(AUDIT)
    s3_store.client.create_multipart_upload(Bucket=s3_store.bucket, Key=full)
    (upload,) = routed.unfinished_uploads(f"audit-{ID}/0/")
    assert isinstance(upload, UnfinishedUpload)
    routed.abort_upload(upload)
    assert list(s3_store.unfinished_uploads()) == []


@pytest.fixture
def signing(default: MemoryStore, s3_store: S3Store) -> Iterator[RoutedStore]:
    return RoutedStore(default, [("audit", s3_store)], ObjectKeys())


def test_the_store_that_has_an_object_signs_its_url(
    signing: RoutedStore, default: MemoryStore, s3_store: S3Store
) -> None:
    assert isinstance(signing, SignsReads)
    signing.put_if_absent(AUDIT, b"x")
    default.put_if_absent(before := AUDIT.replace("1234-", "1233-"), b"x")
    assert s3_store.full(AUDIT) in str(signing.signed_url(AUDIT, 60))
    assert signing.signed_url(before, 60) is None  # the default store cannot sign


def test_reads_are_near_only_if_every_store_is(own: DirectoryStore, default: MemoryStore, tmp_path: Path) -> None:
    near = RoutedStore(DirectoryStore(tmp_path / "other", make=True), [("audit", own)], ObjectKeys())
    assert isinstance(near, NearStore)
    near.put_if_absent(AUDIT, b"bytes")
    assert near.read_into(AUDIT, 1, target := memoryview(bytearray(3))) == 3
    assert bytes(target) == b"yte"
    assert not isinstance(RoutedStore(default, [("audit", own)], ObjectKeys()), NearStore)


def test_what_remains_in_a_store_whose_rule_no_longer_matches_is_read_listed_and_deleted(
    routed: RoutedStore, default: MemoryStore, own: DirectoryStore
) -> None:
    folder = AUDIT.removesuffix(NAME)
    routed.put_if_absent(AUDIT, b"1234")

    def changed() -> RoutedStore:
        return RoutedStore(default, [("other", own)], ObjectKeys())

    assert changed().get(AUDIT) == b"1234"
    assert b"".join(changed().stream_range(AUDIT, ByteRange(1, 3))) == b"23"
    assert [each.key for each in changed().list(folder)] == [AUDIT]
    for look in (lambda store: store.head(AUDIT), lambda store: list(store.list(folder))):
        own.put_if_absent(AUDIT, b"1234") if not list(own.list()) else None
        store = changed()
        look(store)
        store.delete(AUDIT)
        assert list(own.list()) == []
        with pytest.raises(ObjectNotFound):
            store.head(AUDIT)
    assert list(default.list()) == []


def test_a_topic_of_another_store_waits_for_no_store_that_is_away_and_calls_nothing_of_it_missing(
    default: MemoryStore, tmp_path: Path
) -> None:
    away = DirectoryStore(tmp_path / "away", make=False)
    store = RoutedStore(default, [("audit.*", away)], ObjectKeys())
    store.put_if_absent(ORDERS, b"1")
    assert [each.key for each in store.list(ORDERS.removesuffix(NAME))] == [ORDERS]
    store.delete(ORDERS)
    with pytest.raises(ObjectNotFound) as missing:
        store.head(ORDERS)
    assert missing.value.facts[UNNAMED_STORE] == away.description
    with pytest.raises(StorageUnavailable):
        list(store.list(AUDIT.removesuffix(NAME)))
