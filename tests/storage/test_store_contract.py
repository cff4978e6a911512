"""Every store keeps every promise; a store that breaks one is found out."""

from __future__ import annotations

import google_crc32c
import pytest

from tests.storage.verdicts import PROMISES, certify
from tierstate.state.errors import Difference
from tierstate.storage import contract_listings
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB, Data, ObjectStore
from tierstate.storage.probe import probe_store, proof_of

NOT_ATOMIC_IN_MOTO = ("one of many writers wins", "a replacement is refused when the object changed")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_the_store_keeps_its_promise(
    request: pytest.FixtureRequest, store: ObjectStore, promise: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.callspec.params["store"] == "s3":
        if promise.name in NOT_ATOMIC_IN_MOTO:
            pytest.skip("moto looks at the object and then writes: two may win; versitygw is asked instead")
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "20")  # three pages of a listing; versitygw's have 1,000 keys
        monkeypatch.setattr(contract_listings, "MORE_THAN_A_PAGE", 50)
    promise.check(store, "contract/")


class OverwritingStore(MemoryStore):
    """A store that ignores the condition, as some S3 compatibles do."""

    def put_if_absent(self, key: str, data: Data) -> None:
        self.delete(key)
        super().put_if_absent(key, data)


def test_a_store_that_overwrites_is_found_out() -> None:
    store = OverwritingStore()
    broken = {promise.name: error for promise, error in certify(store, "certify/") if error is not None}
    assert "a put never overwrites" in broken
    assert "one of many writers wins" in broken
    assert isinstance(broken["a put never overwrites"], Difference)
    assert list(store.list("")) == []


WITHOUT_CHECKSUMS = ("directory", "azure", "s3")
"""moto computes a CRC-32 where it was asked for a CRC-32C. Objects of such a store are read back."""


def test_the_checksum_that_a_store_keeps_is_the_whole_object_s(
    request: pytest.FixtureRequest, store: ObjectStore
) -> None:
    whole = bytes(range(256)) * 25_000
    store.put_if_absent("small", whole[:1000])
    store.put_stream("large", [whole[:MIB], whole[MIB:]], part_bytes=5 * MIB)
    checksums = [store.head(key).crc32c for key in ("small", "large")]
    expected = [google_crc32c.value(whole[:1000]), google_crc32c.value(whole)]
    has_checksums = request.node.callspec.params["store"] not in WITHOUT_CHECKSUMS
    assert (checksums == expected) is has_checksums
    small = probe_store(store).info
    assert [proof_of(setting, small) for setting in ("checksum", "read")] == [
        "checksum" if has_checksums else "read",
        "read",
    ]
