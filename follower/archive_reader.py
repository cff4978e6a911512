"""Reads the archive piece by piece and verifies every byte, or only searches it for defects."""

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
    """Yield the pieces that begin below ``before``, or all if it is None, in order.

    Raises CorruptData with object, position and reason at the first defect: a changed byte, a missing or swapped
    piece, a fork. Memory: three pieces.
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
    """Return the identity of each tier-state topic with an archive in the store, from the header of one of its pieces.

    ``history`` None means each topic's newest history. With an identity, an archive can be read when its cluster no
    longer exists. Raises CorruptData.
    """
    identities: dict[str, ViewIdentity] = {}
    for place in places(objects, history):
        if place.topic_id not in identities and (name := next(place.pieces(objects), None)) is not None:
            header = read_header(objects, place, name)
            identity = ViewIdentity(header.cluster_id, header.topic_id, header.partitions, history=place.history)
            identities[place.topic_id] = identity
    return list(identities.values())


def verify_archive(objects: ObjectReader, place: TierPlace) -> Iterator[ArchiveFinding]:
    """Yield the defects of an archive: gaps, changed bytes, swapped pieces, forks, foreign objects, a damaged base."""
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
    for result in checked(objects, chain):
        if isinstance(result, ArchiveFinding):
            yield result
