"""Azure Blob Storage on azurite: the whole contract, and a network that fails.

Where azurite 3.35 is not Azure:
- a put with ``If-None-Match: *`` treats uncommitted blocks as an object (409). A commit does not,
  so the store then commits, wherever it happens;
- a range that begins at the object's end is answered with no bytes instead of 416;
- accounts with hierarchical names do not exist there: their folders are made by hand below.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.storage.blob import ContainerClient

from tests.storage.verdicts import PROMISES
from tierstate.state.errors import (
    AccessDenied,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
)
from tierstate.state.offsets import ByteRange
from tierstate.storage.azure import AzureStore
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions

from .cloud_stores import ACCOUNT, KEY
from .cloud_stores import azure_client as azure_client
from .cloud_stores import azure_endpoint as azure_endpoint
from .cloud_stores import azure_proxy as azure_proxy
from .cloud_stores import azure_store as azure_store
from .cloud_stores import broken_azure_store as broken_azure_store
from .faulty_proxy import Fault, FaultyProxy

pytestmark = pytest.mark.slow  # azurite is slow: a minute on a busy machine


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_the_store_keeps_its_promise(azure_store: AzureStore, promise: Promise) -> None:
    promise.check(azure_store, "contract/")


def at(fault: str, method: str, *numbers: int, part: str = "") -> Fault:
    """Return the fault at these requests of the method (whose path has ``part``), from 0; without numbers at all."""
    count = itertools.count()
    return lambda asked, path: (
        fault if asked == method and part in path and (next(count) in numbers or not numbers) else None
    )


def test_a_retried_put_that_met_equal_bytes_of_another_writer_is_refused(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    broken_azure_store.put_if_absent("key", b"the same")
    azure_proxy.fault = at("503", "PUT", 0)
    with pytest.raises(ObjectExists):
        broken_azure_store.put_if_absent("key", b"the same")


def test_a_large_put_whose_last_answer_was_lost_is_done(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    azure_proxy.fault = at("lose the answer", "PUT", 0, part="comp=blocklist")
    assert broken_azure_store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB) == 11 * MIB
    assert azure_proxy.requests["PUT"] == 5
    assert broken_azure_store.head("key").size == 11 * MIB


def test_a_part_whose_answer_was_lost_is_sent_again(broken_azure_store: AzureStore, azure_proxy: FaultyProxy) -> None:
    azure_proxy.fault = at("lose the answer", "PUT", 0, part="comp=block&")
    data = bytes(range(256)) * 4096 * 11
    broken_azure_store.put_stream("key", [data], part_bytes=5 * MIB)
    assert azure_proxy.requests["PUT"] == 5
    assert broken_azure_store.get("key") == data


def test_a_store_that_asks_to_slow_down_slows_a_large_put_and_never_fails_it(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    azure_proxy.fault = at("503", "PUT", 0, part="comp=block&")
    data = bytes(range(256)) * 4096 * 11
    assert broken_azure_store.put_stream("key", [data], part_bytes=5 * MIB) == len(data)
    assert broken_azure_store.get("key") == data


def test_a_large_put_that_fails_leaves_nothing_visible(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    azure_proxy.fault = at("503", "PUT", part="comp=block&")
    with pytest.raises(Throttled):
        broken_azure_store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB)
    with pytest.raises(ObjectNotFound):
        broken_azure_store.head("key")
    assert list(broken_azure_store.list()) == []


def test_uncommitted_blocks_do_not_block_a_put(azure_store: AzureStore, azure_client: ContainerClient) -> None:
    azure_client.get_blob_client("some/prefix/key").stage_block("x" * 38, b"half")
    assert list(azure_store.list()) == []
    azure_store.put_if_absent("key", b"whole")
    assert azure_store.get("key") == b"whole"
    with pytest.raises(ObjectExists):
        azure_store.put_if_absent("key", b"another")


def test_one_of_many_large_puts_wins_whole(azure_store: AzureStore) -> None:
    def put(writer: int) -> int | None:
        try:
            azure_store.put_stream("key", [bytes([writer]) * MIB] * 3, part_bytes=MIB)
        except ObjectExists:
            return None
        return writer

    with ThreadPoolExecutor(4) as pool:
        winners = [writer for writer in pool.map(put, range(4)) if writer is not None]
    assert len(winners) == 1
    assert azure_store.get("key") == bytes(winners) * 3 * MIB


def test_an_object_above_one_answer_reads_back(azure_store: AzureStore) -> None:
    block = bytes(range(251)) * (MIB // 251)
    pieces = [block] * 34
    size = azure_store.put_stream("key", pieces)
    whole = b"".join(pieces)
    assert azure_store.get("key") == whole
    assert azure_store.get_range("key", ByteRange(1, size + 5)) == whole[1:]
    read = list(azure_store.stream_range("key", ByteRange(3, size), 3 * MIB))
    assert max(len(piece) for piece in read) == 3 * MIB
    assert b"".join(read) == whole[3:]


def test_a_body_that_breaks_off_is_continued(broken_azure_store: AzureStore, azure_proxy: FaultyProxy) -> None:
    data = bytes(range(256)) * 4000
    broken_azure_store.put_if_absent("key", data)
    azure_proxy.fault = at("cut the body", "GET", 0)
    assert broken_azure_store.get("key") == data
    azure_proxy.fault = at("cut the body", "GET", 0)
    assert b"".join(broken_azure_store.stream_range("key", ByteRange(5, len(data) + 10), 1000)) == data[5:]


def test_a_body_that_keeps_breaking_off_is_an_error_not_a_short_read(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    broken_azure_store.put_if_absent("key", bytes(1_000_000))
    azure_proxy.fault = at("cut the body", "GET")
    with pytest.raises(StorageUnavailable):
        broken_azure_store.get_range("key", ByteRange(0, 1_000_000))


def test_a_store_that_goes_on_asking_to_slow_down_is_throttling(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    azure_proxy.fault = lambda method, path: "503"
    with pytest.raises(Throttled):
        broken_azure_store.get("key")
    with pytest.raises(Throttled):
        broken_azure_store.put_if_absent("key", b"")
    with pytest.raises(Throttled):
        list(broken_azure_store.list())


def test_a_missing_container_does_not_read_as_a_missing_object(azure_endpoint: str) -> None:
    store = AzureStore("no-such-container", "", StoreOptions(azure_endpoint, credentials=KEY))
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.get("key"),
        lambda: store.get_range("key", ByteRange(0, 1)),
        lambda: store.head("key"),
        lambda: store.delete("key"),
        lambda: store.delete_many(["key"]),
        lambda: store.put_if_absent("key", b"x"),
        lambda: store.put_stream("key", [bytes(9 * MIB)]),
        lambda: list(store.list()),
    )
    for call in calls:
        with pytest.raises(InvalidRequest, match="container does not exist"):
            call()
    store.close()


def test_a_wrong_key_is_denied_and_not_repeated(azure_endpoint: str, azure_client: ContainerClient) -> None:
    wrong = "d3Jvbmcga2V5"
    options = StoreOptions(azure_endpoint, credentials=(ACCOUNT, wrong))
    assert wrong not in repr(options)
    store = AzureStore(azure_client.container_name, "", options)
    for call in (lambda: store.get("key"), lambda: store.head("key"), lambda: store.put_if_absent("key", b"")):
        with pytest.raises(AccessDenied) as raised:
            call()
        assert wrong not in str(raised.value)
    store.close()


def test_a_batch_delete_names_the_object_that_stays(azure_store: AzureStore, azure_client: ContainerClient) -> None:
    keys = [f"{number:03d}" for number in range(300)]
    for key in (keys[0], keys[150], keys[299]):
        azure_store.put_if_absent(key, b"x")
    lease = azure_client.get_blob_client("some/prefix/150").acquire_lease()
    with pytest.raises(AccessDenied, match="key=150"):
        azure_store.delete_many(keys)
    lease.release()
    azure_store.delete_many(keys)
    assert list(azure_store.list()) == []


def test_a_folder_of_an_account_with_hierarchical_names_is_no_object(
    azure_store: AzureStore, azure_client: ContainerClient
) -> None:
    azure_client.upload_blob("some/prefix/folder", b"", metadata={"hdi_isfolder": "true"})
    azure_store.put_if_absent("folder/key", b"x")
    assert [info.key for info in azure_store.list()] == ["folder/key"]


def test_an_object_is_replaced_only_while_it_is_what_it_was(
    azure_store: AzureStore, broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    azure_store.put_if_absent("key", b"old")
    assert not azure_store.replace_if_same("key", b"new", b"other")
    assert azure_store.replace_if_same("key", b"new", b"old")
    assert azure_store.get("key") == b"new"
    with pytest.raises(ObjectNotFound):
        azure_store.replace_if_same("missing", b"new", b"old")

    broken_azure_store.put_if_absent("raced", b"old")

    def somebody_is_faster(method: str, path: str) -> str | None:
        if method == "PUT":
            azure_proxy.fault = lambda method, path: None
            assert broken_azure_store.replace_if_same("raced", b"theirs", b"old")
        return None

    azure_proxy.fault = somebody_is_faster
    assert not broken_azure_store.replace_if_same("raced", b"mine", b"old")
    assert broken_azure_store.get("raced") == b"theirs"


def test_a_replacement_whose_answer_was_lost_is_done(broken_azure_store: AzureStore, azure_proxy: FaultyProxy) -> None:
    broken_azure_store.put_if_absent("key", b"old")
    azure_proxy.fault = at("lose the answer", "PUT", 0)
    assert broken_azure_store.replace_if_same("key", b"new", b"old")
    assert broken_azure_store.get("key") == b"new"
