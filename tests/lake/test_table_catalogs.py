"""A table in a catalog server: Iceberg's own REST catalog, and Glue, with files in a folder and on S3."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.catalogs import of_glue, on_s3, rest_on_s3, s3_and_glue
from tests.lake.tables import NAME, TableWorld
from tests.lake.typed_tables import avro_world
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.storage.faulty_proxy import FaultyProxy
from tests.twins.counting_ids import CountingIds
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_commit import FieldChange, evolve_table
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_snapshots import expire, old_snapshots
from tierstate.lake.table_upkeep import compact, strays, sweep
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.operation import run
from tierstate.state.errors import AccessDenied, InvalidRequest, StorageUnavailable, UnknownOutcome
from tierstate.state.ids import FactId
from tierstate.state.offsets import TimestampMs

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
THREE_COMMITS = TableLimits(file_bytes=40_000, commit_bytes=100_000)
LATER = TimestampMs(SystemClock().now_ms() + 10**9)
IDS = CountingIds(11)


def fresh() -> str:
    return FactId.of(IDS.uuid())


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with s3_and_glue() as endpoint:
        yield endpoint


@pytest.fixture(params=["rest", "rest on S3", "glue"])
def catalog(request: pytest.FixtureRequest, moto: str, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the properties of a catalog without a table."""
    if request.param == "glue":
        properties = of_glue(moto)
        yield properties
        with closing(LakeCatalog(properties)) as left:
            left.drop(NAME)  # a Glue of moto's is one for the whole process
        return
    if request.param == "rest":
        with rest_catalog(tmp_path / "rest", f"file://{tmp_path}/lake") as server:
            yield {"type": "rest", "uri": server.url}
        return
    with rest_on_s3(moto, tmp_path / "rest") as server:
        yield {"type": "rest", "uri": server.url, **on_s3(moto)}


def test_a_table_lives_in_any_catalog_from_its_first_row_to_its_last(
    golden_log: Make, tmp_path: Path, catalog: Mapping[str, str]
) -> None:
    """Followed, compacted, its old snapshots expired, its strays swept, and read by a client that opens the catalog."""
    world = TableWorld(golden_log("transactions"), tmp_path / "world", limits=THREE_COMMITS, properties=catalog)
    with world.catalog() as opened:
        assert list(opened.ours()) == [NAME]
        with pytest.raises(InvalidRequest, match="there is a table of this name"):
            opened.create(NAME, opened.table(NAME).facts)
        with pytest.raises(InvalidRequest, match="no such table"):
            opened.table("kafka.other")
    assert len(world.follow()) == 3
    assert world.table_digest() == world.log_digest()
    table = world.table()
    assert compact(table, fresh, execute=True).commits == 1
    assert expire(table, old_snapshots(table, 1, LATER))
    stray_files = strays(world.table(), LATER)
    assert [each for each in stray_files if each.url.endswith(".parquet")], "what compaction replaced"
    sweep(world.table(), stray_files, lambda _: None)
    assert world.table_digest() == world.log_digest()
    assert not strays(world.table(), LATER)
    assert not world.follow()


def test_a_typed_table_lives_in_any_catalog_while_its_schema_grows(
    golden_log: Make, tmp_path: Path, catalog: Mapping[str, str]
) -> None:
    """Created with the first schema of a registry, followed to the last, evolved by hand, and held against the log."""
    limits = TableLimits(file_bytes=700, commit_bytes=10**6)
    with avro_world(golden_log, tmp_path / "world", limits=limits, properties=catalog) as world:
        rounds = world.follow()
        assert [each.step for each in rounds].count(Step.EVOLVED) == 2
        world.require_same()
        form = world.table().facts.columns.forms["value"]
        schema = json.loads(form.schema)
        schema["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
        expected = {"value": replace(form, schema=json.dumps(schema))}
        assert evolve_table(world.table(), expected, fresh, execute=True) == [FieldChange("value.more", None, "string")]
        assert len(world.table().facts.versions) == 4
        assert "more" in world.rows().schema.field("value").type.names
        world.require_same()


def test_the_second_of_two_racing_followers_gets_an_error(
    golden_log: Make, tmp_path: Path, catalog: Mapping[str, str]
) -> None:
    world = TableWorld(golden_log("transactions"), tmp_path / "world", limits=THREE_COMMITS, properties=catalog)
    for commits in range(2):  # the first of a table, and a later one
        acts = [world.round(), world.round()]
        for act in acts:
            while next(act) != "commit":
                pass
        assert [run(act).step for act in acts] == [Step.APPENDED, Step.RACED], commits
    world.follow()
    assert world.table_digest() == world.log_digest()


class TestACatalogThatGoes:
    """A REST catalog that is killed in the middle of a commit, and comes back."""

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[RestCatalog]:
        with rest_catalog(tmp_path / "rest", f"file://{tmp_path}/lake") as server:
            yield server

    @pytest.fixture
    def proxy(self, server: RestCatalog) -> Iterator[FaultyProxy]:
        with closing(FaultyProxy(server.url)) as proxy:
            yield proxy

    @pytest.fixture
    def world(self, golden_log: Make, tmp_path: Path, proxy: FaultyProxy) -> TableWorld:
        properties = {"type": "rest", "uri": proxy.endpoint}
        return TableWorld(golden_log("transactions"), tmp_path / "world", limits=THREE_COMMITS, properties=properties)

    @pytest.mark.parametrize("landed", [False, True])
    def test_only_the_place_shows_the_outcome_of_a_lost_commit(
        self, world: TableWorld, server: RestCatalog, proxy: FaultyProxy, landed: bool
    ) -> None:
        def fault(method: str, path: str) -> str | None:
            if method == "POST" and path.endswith("/tables/t"):
                if not landed:
                    server.kill()
                return "lose the answer"
            server.kill()
            return None

        act = world.round()
        while next(act) != "commit":
            pass
        proxy.fault = fault
        with pytest.raises(UnknownOutcome, match="did not say whether a commit landed"):
            run(act)
        with pytest.raises(StorageUnavailable):
            world.table()
        proxy.fault = lambda method, path: None
        server.start()
        assert bool(world.table().place().partitions) is landed
        assert len(world.follow()) == (2 if landed else 3)
        assert world.table_digest() == world.log_digest()

    def test_an_answer_that_is_lost_alone_is_no_failure(self, world: TableWorld, proxy: FaultyProxy) -> None:
        proxy.fault = lambda method, path: (
            "lose the answer" if method == "POST" and path.endswith("/tables/t") else None
        )
        assert run(world.round()).step is Step.APPENDED
        assert len(world.follow()) == 2
        assert world.table_digest() == world.log_digest()


@pytest.mark.parametrize(("answer", "error"), [("403", AccessDenied), ("409", StorageUnavailable)])
def test_errors_of_glue_become_errors_of_ours(moto: str, answer: str, error: type[Exception]) -> None:
    with closing(FaultyProxy(moto)) as proxy:
        proxy.fault = lambda method, path: answer
        with pytest.raises(error), closing(LakeCatalog({**of_glue(moto), "glue.endpoint": proxy.endpoint})) as catalog:
            catalog.table(NAME)


def test_a_glue_without_credentials_is_an_error_of_ours(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {name: value for name, value in of_glue(moto).items() if not name.endswith(("-key", "-key-id"))}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with (
        pytest.raises(AccessDenied, match="the catalog's credentials"),
        closing(LakeCatalog(properties)) as catalog,
    ):
        catalog.table(NAME)


def test_a_property_that_pyiceberg_cannot_take_is_named(moto: str) -> None:
    with pytest.raises(InvalidRequest, match="no such catalog"):
        LakeCatalog({**of_glue(moto), "glue.max-retries": "1"})


def test_a_catalog_whose_package_is_not_installed_is_refused_and_the_package_named(tmp_path: Path) -> None:
    pytest.importorskip("hive_metastore")
    with suppress(ImportError):
        import thrift  # type: ignore[import-not-found]  # noqa: F401

        pytest.skip("the package is installed")
    with pytest.raises(InvalidRequest, match=r"pyiceberg\[hive\]"):
        LakeCatalog({"type": "hive", "uri": "thrift://127.0.0.1:1"})


def test_a_table_of_iceberg_3_stays_as_it_is_and_can_be_read(golden_log: Make, tmp_path: Path) -> None:
    """pyiceberg reads that format and does not write it."""
    world = TableWorld(golden_log("transactions"), tmp_path, limits=THREE_COMMITS)
    run(world.round())
    table = world.table()
    io, rows = table.iceberg.io, world.table_digest()
    metadata = json.loads(io.new_input(table.iceberg.metadata_location).open().read())
    url = table.iceberg.metadata_location.replace(".metadata.json", "-3.metadata.json")
    with io.new_output(url).create() as into:
        into.write(json.dumps(metadata | {"format-version": 3, "next-row-id": 0}).encode())
    with world.catalog() as catalog:
        catalog.point(NAME, url)
    with pytest.raises(InvalidRequest, match="a table of Iceberg's format 3; pyiceberg writes none above 2"):
        run(world.round())
    assert world.table_digest() == rows
    assert world.data_files() == world.named_files(), "what was written for the commit is removed"
