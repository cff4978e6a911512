"""A new key in a ring: it is only added, other text is kept, and private keys are private."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tierstate.state.errors import InvalidRequest
from tierstate.storage.segment.new_key import add_key, plan_key

BITS = 2048
KEY = bytes(range(32))


def test_the_first_key_begins_the_ring_and_wraps(tmp_path: Path) -> None:
    ring = add_key(plan_key(tmp_path / "new" / "ring.toml", "key1", bits=BITS))
    assert ring.active == "key1"
    assert ring.unwrap(*ring.wrap(KEY)) == KEY
    private, public = (tmp_path / "new" / f"key1.{kind}.pem" for kind in ("private", "public"))
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert public.read_text().startswith("-----BEGIN PUBLIC KEY-----")


def test_a_second_key_waits_until_it_is_activated(tmp_path: Path) -> None:
    path = tmp_path / "ring.toml"
    old = add_key(plan_key(path, "key1", bits=BITS)).wrap(KEY)[1]
    assert add_key(plan_key(path, "key2", bits=BITS)).active == "key1"
    ring = add_key(plan_key(path, "key.3", bits=BITS, activate=True))
    assert ring.active == "key.3"
    assert list(ring.keys) == ["key1", "key2", "key.3"]
    assert ring.unwrap("key1", old) == KEY


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    plan = plan_key(tmp_path / "ring.toml", "key1")
    assert (plan.activates, plan.begins_ring) == (True, True)
    assert list(tmp_path.iterdir()) == []


def test_comments_permissions_and_order_of_the_ring_stay(tmp_path: Path) -> None:
    path = tmp_path / "ring.toml"
    add_key(plan_key(path, "key1", bits=BITS))
    path.write_text("# ours\n" + path.read_text() + "# end\n")
    path.chmod(0o640)
    before = path.read_text()
    add_key(plan_key(path, "key2", bits=BITS))
    assert path.read_text().startswith(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix != ".pem") == ["ring.toml"]


def test_no_pem_file_is_overwritten_and_no_id_used_twice(tmp_path: Path) -> None:
    path = tmp_path / "ring.toml"
    plan = plan_key(path, "key1", bits=BITS)
    raced = plan_key(path, "key1", bits=BITS)
    add_key(plan)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(InvalidRequest, match="has a key of this id"):
        plan_key(path, "key1")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        add_key(raced)
    (tmp_path / "key2.public.pem").write_text("precious")
    with pytest.raises(InvalidRequest, match="is not overwritten"):
        plan_key(path, "key2")
    assert before.items() <= {each.name: each.read_bytes() for each in tmp_path.iterdir()}.items()


@pytest.mark.parametrize("key_id", ["", " ", "a:b", "../up", "a/b", '"', ".hidden", "-x", "ä", "x" * 65, "a\n"])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, key_id: str) -> None:
    with pytest.raises(InvalidRequest, match="a new key id"):
        plan_key(tmp_path / "ring.toml", key_id)


@pytest.mark.parametrize("bits", [1024, 2047, 8193])
def test_an_unsafe_length_is_refused(tmp_path: Path, bits: int) -> None:
    with pytest.raises(InvalidRequest, match="bits out of range"):
        plan_key(tmp_path / "ring.toml", "key1", bits=bits)


def test_a_ring_in_another_style_is_left_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "ring.toml"
    add_key(plan_key(path, "key1", bits=BITS))
    path.write_text('active = "key1"\nkeys = { key1 = { public = "key1.public.pem" } }\n')
    before = path.read_text()
    with pytest.raises(InvalidRequest, match="edited by hand"):
        add_key(plan_key(path, "key2", bits=BITS))
    assert path.read_text() == before
    assert not (tmp_path / "key2.private.pem").exists()
