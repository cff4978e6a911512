"""The chain of pieces that forms the archive: found by listing, and verified piece by piece when it is read.

Around a leader change, two agents may write at the same time, so pieces may overlap. The chain is the furthest piece
and its predecessors. Every other piece is a *side piece*. It is valid if it agrees with the chain at all positions
where both have a record. (A record that only one has was compacted away before the other piece was written.)
After a cut (`archive.py`) the chain begins at the base, and pieces below the base are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ..state.offsets import ByteRange, Position
from ..storage.object_store import ObjectReader
from .archive_piece import NO_PREVIOUS, WINDOW, Piece, PieceHeader, decode_header, decode_piece
from .envelope import HEAD_BYTES
from .live_set_object import BASE, check_body
from .live_set_object import read_header as read_live_set_header
from .object_names import PieceName, PositionName, TierPlace

START = Position(0)
MAX_PIECE_BYTES = 64 * 1024 * 1024
"""No piece is larger (`archive_piece.MAX_PLAIN_BYTES` and one record more): a larger object is not read into memory."""


@dataclass(frozen=True, slots=True)
class ArchiveFinding:
    """A defect of an archive. ``position`` is None if the defect is not at a single position."""

    object_key: str
    position: Position | None
    problem: str

    def error(self) -> CorruptData:
        return CorruptData(f"the archive is damaged: {self.problem}", file=self.object_key, position=self.position)


@dataclass(frozen=True, slots=True)
class Chain:
    """``base``: the live set with which the chain starts, or None if the chain starts at 0. ``sides``: side pieces.

    ``names``: the pieces in order. If a piece does not begin where its predecessor ends, pieces are missing there.
    """

    place: TierPlace
    base: PositionName | None
    names: tuple[PieceName, ...]
    sides: tuple[PieceName, ...]

    @property
    def start(self) -> Position:
        return self.base.position if self.base else START

    @property
    def missing(self) -> tuple[Position, Position] | None:
        """The first missing range of positions (inclusive), judged by the names of pieces alone, or None."""
        reached = self.start
        for name in self.names:
            if name.first > reached:
                return reached, Position(name.first - 1)
            reached = Position(name.last + 1)
        return None

    @property
    def end(self) -> Position:
        """The position after the furthest piece."""
        return Position(self.names[-1].last + 1) if self.names else self.start


def archived_to(objects: ObjectReader, place: TierPlace, floor: Position = START) -> Position:
    """Return the position below which every record is archived. ``floor``, an earlier result, saves LIST requests.

    Only the names of pieces are read, which suffices for the check before erasing. `verify_archive` reads the contents.
    """
    bases = place.bases(objects) if floor == 0 else []
    reach = max([floor, *(base.position for base in bases)])
    # no piece crosses a border
    return reached_by(place.pieces(objects, since=reach // WINDOW * WINDOW), reach)


def reached_by(names: Iterable[PieceName], reach: Position) -> Position:
    """Return how far ``names``, in LIST order, extend ``reach`` without a gap. All below ``reach`` must be archived."""
    for name in names:
        if name.first > reach:
            break
        reach = max(reach, Position(name.last + 1))
    return reach


def furthest_of(names: Iterable[PieceName]) -> PieceName | None:
    """Return the piece after which a writer continues: the longest of those that end last. None if there are none."""
    return min(names, key=lambda name: (-name.last, name.first), default=None)


def newest_base(objects: ObjectReader, place: TierPlace) -> PositionName | None:
    """Return the base that the archive begins with; None if it begins with the first record. One LIST."""
    bases = place.bases(objects)
    return bases[-1] if bases else None


def chain_of(objects: ObjectReader, place: TierPlace) -> Chain:
    """Return the chain by names. Two LISTs, and one small read for each piece with several possible predecessors."""
    return chain_after(objects, place, newest_base(objects, place))


def chain_after(objects: ObjectReader, place: TierPlace, base: PositionName | None) -> Chain:
    """Return the chain from ``base`` on, which may end within a piece. Windows below ``base`` are not listed."""
    start = base.position if base else START
    # no piece crosses a border
    names = [name for name in place.pieces(objects, since=start // WINDOW * WINDOW) if name.last >= start]
    if not names:
        return Chain(place, base, (), ())
    ending: dict[int, list[PieceName]] = {}
    for name in names:
        ending.setdefault(name.last, []).append(name)
    path = [_longest(ending[max(ending)])]
    while path[-1].first > start:
        before = ending.get(path[-1].first - 1)
        if before is None:  # a gap: the chain continues below it, and `checked` reports it
            lower = [last for last in ending if last < path[-1].first]
            if not lower:
                break
            before = ending[max(lower)]
        path.append(before[0] if len(before) == 1 else _named_by(objects, place, path[-1], before))
    chosen = set(path)
    return Chain(place, base, tuple(reversed(path)), tuple(name for name in names if name not in chosen))


def _longest(names: list[PieceName]) -> PieceName:
    return min(names, key=lambda name: name.first)


def _named_by(objects: ObjectReader, place: TierPlace, name: PieceName, candidates: list[PieceName]) -> PieceName:
    try:
        first = read_header(objects, place, name).previous_first
    except (CorruptData, InvalidRequest):
        return _longest(candidates)  # `checked` reports the damaged piece
    return next((each for each in candidates if each.first == first), _longest(candidates))


def read_header(objects: ObjectReader, place: TierPlace, name: PieceName) -> PieceHeader:
    """Return the header of one piece, without its body. Raises CorruptData, InvalidRequest."""
    return decode_header(objects.get_range(name.key, ByteRange(0, HEAD_BYTES)), place, name)[0]


def read_piece(objects: ObjectReader, place: TierPlace, name: PieceName) -> Piece:
    """Return one piece, verified without its neighbours. Raises CorruptData, InvalidRequest."""
    return decode_piece(objects.get(name.key, MAX_PIECE_BYTES), place, name)


def checked(objects: ObjectReader, chain: Chain) -> Iterator[Piece | ArchiveFinding]:
    """Yield the pieces of the chain in order, each verified alone and against its predecessor and its side pieces.

    A finding is yielded instead of an unreadable piece, and before a piece with another defect. Memory: three pieces.
    """
    before: Piece | None = None
    reached = chain.start
    broken = False
    for name in chain.names:
        if name.first > reached:
            yield ArchiveFinding(name.key, reached, f"positions {reached} to {name.first - 1} before it are missing")
        piece = _piece_or_finding(objects, chain.place, name)
        if isinstance(piece, ArchiveFinding):
            yield piece
        else:
            if not broken and name.first == reached:
                yield from _link_problems(chain, before, piece)
            for side in chain.sides:
                if side.first <= name.last and name.first <= side.last:
                    yield from _side_problems(objects, chain.place, piece, side)
            yield piece
            before = piece
        broken = isinstance(piece, ArchiveFinding)
        reached = Position(name.last + 1)


def _piece_or_finding(objects: ObjectReader, place: TierPlace, name: PieceName) -> Piece | ArchiveFinding:
    try:
        return read_piece(objects, place, name)
    except (CorruptData, InvalidRequest, ObjectNotFound) as error:
        return ArchiveFinding(name.key, name.first, error.message)


def _link_problems(chain: Chain, before: Piece | None, piece: Piece) -> Iterator[ArchiveFinding]:
    header, first = piece.header, piece.name.first
    if before is not None:
        if (header.previous, header.previous_first) != (before.sha256, before.name.first):
            yield ArchiveFinding(piece.name.key, first, f"it does not continue {before.name.key}")
        theirs = (before.header.cluster_id, before.header.partitions)
        if (header.cluster_id, header.partitions) != theirs:
            yield ArchiveFinding(piece.name.key, first, "it is of another cluster or mapping than the one before it")
    elif chain.base is None and (header.previous, header.previous_first) != (NO_PREVIOUS, -1):
        yield ArchiveFinding(piece.name.key, first, "it stands first and is not the first")


def _side_problems(objects: ObjectReader, place: TierPlace, piece: Piece, side: PieceName) -> Iterator[ArchiveFinding]:
    other = _piece_or_finding(objects, place, side)
    if isinstance(other, ArchiveFinding):
        yield other
        return
    ours = {each.position: each for each in piece.entries}
    for theirs in other.entries:
        mine = ours.get(theirs.position)
        if mine is not None and mine != theirs:
            yield ArchiveFinding(side.key, theirs.position, f"it contradicts {piece.name.key}")
            return


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
