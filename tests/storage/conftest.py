"""Stores to test with, and the golden buckets."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW
from tests.servers.store_server import versitygw
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, base_of, object_key
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRange, AbortedRanges, Compression, RemoteSegment, Term
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.chunks import first_offsets
from tierstate.storage.segment.encryption import SegmentCipher
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import SegmentManifest, SentChecksums, TierstateBlock, metadata_of
from tierstate.storage.segment.manifest_json import with_own_size
from tierstate.storage.segment.reader import SegmentReader
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

from .faulty_proxy import FaultyProxy

DATA = Path(__file__).parent.parent / "data"
_buckets = itertools.count(1)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Yield the endpoint of a moto server on a free loopback port."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def _new_bucket(endpoint: str) -> str:
    bucket = f"bucket-{os.getpid()}-{next(_buckets)}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=bucket)
    client.close()
    return bucket


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    """Return a bucket of the test's own."""
    return _new_bucket(s3_endpoint)


@pytest.fixture(scope="session")
def versitygw_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A versitygw on a free loopback port. Without Go the test is skipped; with TIERSTATE_CI=1 it fails."""
    needs(VERSITYGW)
    with versitygw(tmp_path_factory.mktemp("versitygw"), "test", "test") as server:
        yield server.url


@pytest.fixture
def versitygw_bucket(versitygw_endpoint: str) -> str:
    """Return a bucket of the test's own."""
    return _new_bucket(versitygw_endpoint)


@pytest.fixture
def versitygw_store(versitygw_endpoint: str, versitygw_bucket: str) -> Iterator[S3Store]:
    options = StoreOptions(versitygw_endpoint, "us-east-1", credentials=("test", "test"), max_attempts=3)
    store = S3Store(versitygw_bucket, "some/prefix", options)
    yield store
    store.close()


@pytest.fixture
def s3_store(s3_endpoint: str, s3_bucket: str) -> Iterator[S3Store]:
    options = StoreOptions(s3_endpoint, "us-east-1", credentials=("test", "test"), max_attempts=1)
    store = S3Store(s3_bucket, "some/prefix", options)
    yield store
    store.close()


@pytest.fixture
def faulty_proxy(s3_endpoint: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def memory_store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def directory_store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


@pytest.fixture(params=["memory", "directory", "s3", pytest.param("versitygw", marks=pytest.mark.extended)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Return a store of each implementation in turn."""
    implementation: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return implementation


@pytest.fixture
def data_folder() -> Path:
    return DATA


@dataclass(frozen=True)
class GoldenSegment:
    """One segment that Aiven's classes (or the writer compared with them) wrote, and its store."""

    store: ObjectStore
    base_key: str
    keyring: KeyRing

    def object(self, kind: ObjectKind) -> bytes:
        return self.store.get(object_key(self.base_key, kind))

    def reader(self, cache: ChunkCache | None = None) -> SegmentReader:
        return SegmentReader.open(self.store, self.base_key, keys=self.keyring, cache=cache)


class Golden(Protocol):
    def __call__(self, bucket: str) -> GoldenSegment: ...


@pytest.fixture
def golden() -> Golden:
    """Return ``golden("aiven/zstd")``: the first segment of a golden bucket, copied into a store of this process."""

    def load(bucket: str) -> GoldenSegment:
        store = MemoryStore()
        folder = DATA / bucket
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                store.put_if_absent(path.relative_to(folder).as_posix(), path.read_bytes())
        manifest = next(info.key for info in store.list() if info.key.endswith(ObjectKind.MANIFEST))
        return GoldenSegment(store, base_of(manifest), KeyRing.load(DATA / "aiven-kafka" / "keyring.toml"))

    return load


class WriteSegment(Protocol):
    def __call__(
        self,
        store: ObjectStore,
        log: bytes,
        *,
        compression: Compression = Compression.NONE,
        chunk_bytes: int = 1000,
        transaction_index: bytes | None = None,
        aborted: tuple[AbortedRange, ...] = (),
        keys: KeyRing | None = None,
    ) -> RemoteSegment: ...


BASE_KEY = "topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ"


@pytest.fixture
def write_segment() -> WriteSegment:
    """Return a function that writes a whole segment as an agent does, in three steps, and returns its descriptor."""

    def write(
        store: ObjectStore,
        log: bytes,
        *,
        compression: Compression = Compression.NONE,
        chunk_bytes: int = 1000,
        transaction_index: bytes | None = None,
        aborted: tuple[AbortedRange, ...] = (),
        keys: KeyRing | None = None,
    ) -> RemoteSegment:
        pieces = [log[at : at + 777] for at in range(0, len(log), 777)]
        source = SegmentSource(pieces, len(log), b"offsets", b"times", b"", b"0\n1\n0 1234\n", transaction_index)
        cipher, encryption = (None, None) if keys is None else SegmentCipher.new(keys, os.urandom)
        written = put_log(store, BASE_KEY, source, compression, cipher=cipher, chunk_bytes=chunk_bytes)
        indexes = put_indexes(store, BASE_KEY, source, cipher=cipher)
        segment = RemoteSegment(
            partition=TopicIdPartition(TopicId("MWJ6FHTfRYy67jzwZdeqSQ"), 7),
            topic="topic",
            segment_id=RemoteSegmentId("tqimKeZwStOEOwRzT3L5oQ"),
            object_key=BASE_KEY,
            offsets=OffsetRange(Offset(1234), Offset(2345)),
            last_record_offset=Offset(2300),
            record_count=1000,
            leader_epochs=Lineage.of((0, 1234), (5, 2000)),
            max_timestamp=TimestampMs(1_700_000_000_123),
            log_bytes=len(log),
            log_object_bytes=written.stored_bytes,
            indexes_object_bytes=indexes.stored_bytes,
            manifest_bytes=0,
            log_sha256=written.sha256,
            log_crc32c=written.crc32c,
            indexes_sha256=indexes.sha256,
            compression=compression,
            encryption_key_id=None if encryption is None else encryption.key_id,
            transaction_index_empty=not transaction_index,
            aborted=AbortedRanges.of(aborted),
            broker_id=BrokerId(3),
            term=Term(LeaderEpoch(5), Position(17), FactId("AAAAAAAAAAAAAAAAAAAAAQ")),
            copied_at=TimestampMs(1_700_000_002_000),
        )
        firsts = first_offsets([(0, Offset(1234))], chunk_bytes, len(log))
        block = TierstateBlock(
            segment,
            "cluster",
            TopicId("A" * 22),
            Offset(1000),
            firsts,
            AbortedRanges.of(aborted).entries or aborted,
            SentChecksums(written.object_crc32c, indexes.object_crc32c, written.chunk_crc32c),
        )
        metadata = metadata_of(segment, TimestampMs(1_700_000_001_000))
        compressed = compression is Compression.ZSTD
        manifest = with_own_size(
            SegmentManifest(written.chunks, indexes.spans, compressed, encryption, metadata, block)
        )
        put_manifest(store, BASE_KEY, manifest)
        assert manifest.tierstate is not None
        return manifest.tierstate.segment

    return write
