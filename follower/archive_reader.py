"""Read the archive: piece by piece, every byte verified; or only look for what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ..state.offsets import Position
from ..storage.object_store import ObjectReader
from .archive_chain import ArchiveFinding, Chain, chain_of, checked, read_header
from .archive_piece import Piece
from .histories import places
from .live_set_object import BASE, check_body
from .live_set_object import read_header as read_live_set_header
from .object_names import TierPlace
from .rocksdb_view import ViewIdentity


def read_archive(objects: ObjectReader, chain: Chain, before: Position | None = None) -> Iterator[Piece]:
    """The pieces that begin below ``before``, in order.

    Raises CorruptData naming object, position and reason at the first thing that is wrong: a changed byte, a missing
    or swapped piece, a fork. Memory: three pieces.
    """
    for piece in checked(objects, chain):
        if isinstance(piece, ArchiveFinding):
            if before is not None and piece.position is not None and piece.position >= before:
                return
            raise piece.error()
        if before is not None and piece.name.first >= before:
            return
        yield piece


def archived_topics(objects: ObjectReader, history: int | None = None) -> list[ViewIdentity]:
    """Every tier-state topic that the store has an archive of, by the header of one piece each; its newest history, or
    this one.

    So that an archive can be read when no cluster is left to ask. Raises CorruptData.
    """
    found: dict[str, ViewIdentity] = {}
    for place in places(objects, history):
        if place.topic_id not in found and (name := next(place.pieces(objects), None)) is not None:
            header = read_header(objects, place, name)
            identity = ViewIdentity(header.cluster_id, header.topic_id, header.partitions, history=place.history)
            found[place.topic_id] = identity
    return list(found.values())


def verify_archive(objects: ObjectReader, place: TierPlace) -> Iterator[ArchiveFinding]:
    """Everything that is wrong with one partition's archive.

    Gaps, changed bytes, swapped pieces, forks, strangers, a damaged base.
    """
    for each in objects.list(place.pieces_prefix):
        if place.parse_piece(each.key) is None:
            yield ArchiveFinding(each.key, None, "not a piece of the archive")
    chain = chain_of(objects, place)
    if chain.base is not None:
        try:
            header, start = read_live_set_header(objects, chain.base, BASE, place, None)
            for _ in check_body(objects, chain.base.key, header, start):
                pass
        except (CorruptData, InvalidRequest, ObjectNotFound) as error:
            yield ArchiveFinding(chain.base.key, chain.base.position, error.message)
    for found in checked(objects, chain):
        if isinstance(found, ArchiveFinding):
            yield found
