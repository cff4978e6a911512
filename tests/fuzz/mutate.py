"""Damage bytes as disks, networks and liars damage them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

import google_crc32c

EXTREMES = (0, 1, -1, 127, -128, 2**15 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63))
HEADER = 61
"""The bytes of a record batch's header. The length is at 8; the CRC of all bytes from 21 on is at 17."""


def flip(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def overwrite(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Replace a number by one at the limit of its width."""
    width = random.choice([1, 2, 4, 8])
    at = random.randrange(max(1, len(data) - width + 1))
    number = random.choice(EXTREMES) & (256**width - 1)
    data[at : at + width] = number.to_bytes(width, random.choice(["big", "little"]))


def varint(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    """Replace a byte by a longer length."""
    at = random.randrange(len(data))
    data[at : at + 1] = bytes([0xFF] * random.randrange(1, 10) + [random.randrange(128)])


def cut(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    del data[random.randrange(len(data)) :]


def drop(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.randrange(1, 64)]


def repeat(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    at, size = random.randrange(len(data)), random.randrange(1, 200)
    data[at:at] = data[at : at + size] * random.randrange(1, 20)


def splice(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    at, start = random.randrange(len(data)), random.randrange(max(1, len(other)))
    data[at : at + random.randrange(200)] = other[start : start + random.randrange(200)]


def noise(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    at = random.randrange(len(data))
    data[at : at + random.randrange(1, 32)] = random.randbytes(random.randrange(1, 32))


Mutation = Callable[[bytearray, Random, Sequence[bytes]], None]
MUTATIONS: tuple[Mutation, ...] = (flip, overwrite, varint, cut, drop, repeat, splice, noise)


def mutated(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """Return the data with one to six faults; the same ``random`` gives the same bytes."""
    mutant = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        if not mutant:
            break
        random.choice(MUTATIONS)(mutant, random, others)
    return bytes(mutant)


def batch_put_right(data: bytes) -> bytes:
    """Return the first batch with its true length and CRC, so that a decoder has to look further."""
    if len(data) < HEADER:
        return data
    body = data[:8] + struct.pack(">i", len(data) - 12) + data[12:17]
    return body + struct.pack(">I", google_crc32c.value(data[21:])) + data[21:]
