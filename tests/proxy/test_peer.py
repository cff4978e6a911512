"""Frames of one end, however their bytes arrive."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from tierstate.proxy.direct import Gone
from tierstate.proxy.peer import Peer

FRAMES = struct.pack(">i6s", 6, b"abcdef") + struct.pack(">i4s", 4, b"ghij")


def comes(peer: Peer, data: bytes) -> None:
    peer.get_buffer(-1)[: len(data)] = data
    peer.buffer_updated(len(data))


def with_a_peer(read: Callable[[Peer], Awaitable[None]], came: list[bytes]) -> None:
    """``read`` it, while one piece after the other comes and then the end."""

    async def both() -> None:
        peer = Peer()
        reading = asyncio.ensure_future(read(peer))
        for piece in came:
            await asyncio.sleep(0)
            comes(peer, piece)
            await asyncio.sleep(0)
        peer.eof_received()
        await asyncio.wait_for(reading, 5)

    asyncio.run(both())


@pytest.mark.parametrize("step", range(1, len(FRAMES) + 1))
def test_frames_are_the_same_in_whatever_pieces_they_come(step: int) -> None:
    async def read(peer: Peer) -> None:
        found = []
        while (size := await peer.frame()) is not None:
            found.append(await peer.exactly(size))
            assert peer.left == 0
        assert found == [b"abcdef", b"ghij"]
        assert peer.held == 0

    with_a_peer(read, [FRAMES[at : at + step] for at in range(0, len(FRAMES), step)])


@pytest.mark.parametrize("cut", range(1, 10))
def test_an_end_that_leaves_within_a_frame_is_gone(cut: int) -> None:
    async def read(peer: Peer) -> None:
        with pytest.raises(Gone):
            await peer.exactly(await peer.frame() or 0)

    with_a_peer(read, [FRAMES[:cut]])


@pytest.mark.parametrize("step", [1, 3, len(FRAMES)])
def test_what_passes_from_end_to_end_is_the_frame_and_no_more(step: int) -> None:
    async def read(peer: Peer) -> None:
        to = Peer()
        assert await peer.frame() == 6
        await peer.pipe(6, to)
        assert to._together == b"abcdef"
        assert await peer.frame() == 4

    with_a_peer(read, [FRAMES[at : at + step] for at in range(0, len(FRAMES), step)])
