"""Load pieces on a separate thread, a few ahead of the consumer: the store answers while records are decoded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


def read_ahead(pieces: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the same pieces, at most ``depth`` of them waiting. An error is raised after the pieces before it.

    Memory: ``depth`` waiting pieces, one that is being loaded, and one that the consumer holds. A consumer that closes
    the iterator early waits only for the piece that is being loaded.
    """
    loaded: queue.Queue[T | BaseException | None] = queue.Queue()
    room, stopped = threading.Semaphore(depth), threading.Event()

    def load() -> None:
        try:
            for piece in pieces:
                loaded.put(piece)
                room.acquire()
                if stopped.is_set():
                    break
            if isinstance(pieces, Generator):
                pieces.close()  # on the thread that ran it, before the consumer sees the end
            loaded.put(None)
        except BaseException as error:  # any error: the consumer gets it
            loaded.put(error)

    worker = threading.Thread(target=load, name="read-ahead", daemon=True)
    worker.start()
    try:
        while (piece := loaded.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            room.release()
            yield piece
    finally:
        stopped.set()
        room.release()
        worker.join()
