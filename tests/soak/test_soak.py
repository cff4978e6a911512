"""A soak of half a minute: it runs and holds, and it can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.kinds import KINDS, sequence
from tests.soak.report import document, pages
from tests.soak.soak import Soak
from tierstate.state.object_keys import ObjectKind

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
SHORT = ("agent killed (-9)", "broker killed (-9)", "leader moved", "agent stopped (TERM)", "stray object swept")


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Soak]:
    """Yield a soak that is over and not yet closed."""
    kinds = tuple(each for each in KINDS if each.name in SHORT)
    made = Soak(tmp_path_factory.mktemp("soak"), 7, kinds)
    try:
        made.open().run(0.5)
        made.settle()
        yield made
    finally:
        made.close()


def test_it_holds_and_says_what_it_did(soak: Soak) -> None:
    report = document(soak)
    assert report["complaints"] == []
    assert report["held"]
    assert report["checks"]["records_read"] > 0
    assert report["checks"]["of_them_remote"] > 0
    assert report["checks"]["segments_verified"] > 0
    assert all(each["shown"] for each in report["disturbances"])
    assert "it held" in pages(report)
    assert not any(len(each.client) for each in soak.ground.writers), "the truth does not know of all that was sent"


def test_one_record_of_the_truth_changed_is_found(soak: Soak) -> None:
    partition = soak.ground.truth.known[f"{soak.ground.name}-kept", 0]
    partition.numbers[3] += 1
    try:
        assert [each for each in soak.checks.records() if "not the ones acknowledged there" in each]
    finally:
        partition.numbers[3] -= 1
    assert soak.checks.records() == []


def test_a_missing_object_and_a_stray_one_are_found(soak: Soak) -> None:
    log = next(each for each in soak.ground.house.objects() if each.suffix == f".{ObjectKind.LOG}".replace("..", "."))
    hidden = log.rename(soak.folder / "hidden")
    stray = log.with_name("stray")
    stray.write_bytes(b"x")
    try:
        complaints = soak.checks.objects()
        assert [each.split(":")[0] for each in complaints] == [
            "an object that no live fact explains",
            "a fact names an object that is missing",
        ]
        assert [each for each in soak.checks.verify(strict=True) if "the object is missing" in each]
    finally:
        hidden.rename(log)
        stray.unlink()
    assert soak.checks.objects() == []


def test_the_same_seed_asks_for_the_same_things() -> None:
    def first(seed: int) -> list[tuple[str, float]]:
        made = sequence(seed)
        return [(kind.name, chance.random()) for kind, chance in (next(made) for _ in range(30))]

    assert first(3) == first(3)
    assert first(3) != first(4)
    assert len({name for name, _ in first(3)}) == len(KINDS)
