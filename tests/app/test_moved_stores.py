"""Which store a process opens when its objects were moved: credentials go only to the places of the settings."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.app.opening.moved import place_of
from tierstate.app.opening.split_reads import access_by
from tierstate.app.opening.store_place import StorePlace
from tierstate.follower.move import Move
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidRequest, InvalidSettings
from tierstate.state.offsets import Position, TimestampMs
from tierstate.storage.s3 import S3Store

OWN = {"url": "s3://old/tier", "endpoint": "https://one", "region": "a", "access_key_id": "k", "secret_access_key": "s"}


def moved_to(url: str, endpoint: str = "https://one", region: str = "b") -> Move:
    return Move("", "s3://old/tier", url, endpoint, region, "", Position(0), "", "", TimestampMs(0))


def target_of(place: StorePlace, move: Move) -> S3Store:
    store: Any = place._target_of(move, ManualClock())
    assert isinstance(store, S3Store)
    return store


def place(**next_store: str) -> StorePlace:
    return place_of(Settings.model_validate({"store": OWN, "next_store": next_store}))


def test_another_bucket_of_the_same_endpoint_is_opened_with_the_same_credentials() -> None:
    store = target_of(place(), moved_to("s3://new/tier"))
    assert (store.bucket, store.options.endpoint, store.options.region) == ("new", "https://one", "b")
    assert store.options.keys == ("k", "s")


@pytest.mark.parametrize("move", [moved_to("s3://new/tier", "https://two"), moved_to("gs://new/tier", "")])
def test_another_endpoint_or_kind_of_store_is_refused_until_a_setting_names_it(move: Move) -> None:
    with pytest.raises(InvalidRequest, match="name their store"):
        target_of(place(), move)


def test_a_named_target_is_opened_with_its_own_options() -> None:
    named = {"url": "s3://new/tier/", "endpoint": "https://two", "access_key_id": "k2", "secret_access_key": "s2"}
    store = target_of(place(**named), moved_to("s3://new/tier", "https://two"))
    assert (store.options.endpoint, store.options.keys) == ("https://two", ("k2", "s2"))
    with pytest.raises(InvalidSettings, match="both or neither"):
        place(access_key_id="k2")


@pytest.mark.parametrize("url", ["s3://new", "s3://new/tier/", "s3://new/tie", "s3://ne"])
def test_a_prefix_in_a_named_bucket_is_opened_with_the_options_of_that_bucket(url: str) -> None:
    named = place(url=url, endpoint="https://two", access_key_id="k2", secret_access_key="s2")
    endpoint = "https://two" if url in ("s3://new", "s3://new/tier/") else "https://one"
    assert named.options_of("s3://new/tier", None).endpoint == endpoint
    if endpoint == "https://two":
        assert target_of(named, moved_to("s3://new/tier", endpoint)).options.keys == ("k2", "s2")


def test_processes_of_a_scan_follow_a_move_too() -> None:
    named = {"url": "s3://new/tier", "endpoint": "https://two"}
    access = pickle.loads(pickle.dumps(access_by(Settings.model_validate({"store": OWN, "next_store": named}))))
    with access.reads([], ManualClock()) as reads:
        target = reads.store._open_target(moved_to("s3://new/tier", "https://two"))
        assert target.options.endpoint == "https://two"
