"""Load pieces on a separate thread, a few ahead of the consumer: the store answers while records are decoded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(pieces: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the same pieces, at most ``depth`` of them waiting. An error is raised after the pieces before it.

    Memory: ``depth`` waiting pieces, one that is being loaded, and one that the consumer holds. A consumer that closes
    the iterator early waits only for the piece that is being loaded.
    """
    worker = _Worker(pieces, depth)
    try:
        while (taken := worker.take()) is not None:
            yield taken
    finally:
        worker.stop()


class _Worker(Generic[T]):
    def __init__(self, pieces: Iterator[T], depth: int) -> None:
        self._pieces = pieces
        self._made: queue.Queue[T | BaseException | None] = queue.Queue()
        self._room = threading.Semaphore(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for piece in self._pieces:
                self._made.put(piece)
                self._room.acquire()
                if self._stopped.is_set():
                    break
            if isinstance(self._pieces, Generator):
                self._pieces.close()  # on the thread that ran it, before the consumer sees the end
            self._made.put(None)
        except BaseException as error:  # any error: `take` raises it
            self._made.put(error)

    def take(self) -> T | None:
        piece = self._made.get()
        if isinstance(piece, BaseException):
            raise piece
        self._room.release()
        return piece

    def stop(self) -> None:
        self._stopped.set()
        self._room.release()
        self._thread.join()
