"""A folder as an object store: atomic and durable. It suits the demo, one machine, or NFS.

An object is written to a hidden temporary folder, fsynced, and linked to its name. A hard link never replaces a file,
so the file system itself provides put-if-absent. Then its folder is fsynced, and folders above it that this process has
not fsynced before.
A writer locks its unfinished file. The files of killed writers have no lock: opening the store removes them.
The temporary folder also marks the store. If the mark is missing (a disk that is not mounted), operations raise
StorageUnavailable instead of ObjectNotFound, and nothing is written below the mount point. The mark is
created only with ``make`` (``tierstate init``): an agent that starts without the disk must not begin an empty store.
Folders are never removed, so no put races with a delete. Symbolic links and files without a valid key are no objects.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..state.errors import (
    AccessDenied,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
    TierstateError,
)
from ..state.objects import TEMPORARY_FOLDER, ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange, TimestampMs
from .direct_file import DirectFile
from .object_store import DEFAULT_PART_BYTES, MIB, Data, beyond_end, over_limit

AHEAD_BYTES = 8 * MIB
"""Distance from the start of a read to the bytes that the kernel is asked to read ahead."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_A_NAME = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


class DirectoryStore:
    """Keeps objects below one folder. ``make``: create the folder if its parent exists. Without ``make``, operations
    raise StorageUnavailable until the folder exists. ``marked`` False: a folder without a mark, which is only read.
    Raises InvalidRequest, AccessDenied.
    """

    def __init__(self, folder: Path, *, make: bool = True, marked: bool = True) -> None:
        if not folder.is_absolute():
            raise InvalidRequest("a store's folder is an absolute path", folder=folder)
        self._root = os.path.realpath(folder)
        self._temporary = os.path.join(self._root, TEMPORARY_FOLDER)
        self._marked = marked
        self._durable = {self._root}
        """Folders whose names are on the disk, as this process has seen to."""
        if not os.path.isdir(os.path.dirname(self._root)):
            raise InvalidRequest("the parent of the store's folder does not exist", folder=folder)
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise InvalidRequest("the store's folder is not a folder", folder=folder)
        if make:
            with self._typed("", writing=True):
                os.makedirs(self._temporary, exist_ok=True)
                fsync_folder(os.path.dirname(self._root))
        if marked:
            self._remove_leftovers()

    @property
    def description(self) -> str:
        return Path(self._root).as_uri()

    def put_if_absent(self, key: str, data: Data) -> None:
        self.put_stream(key, (data,))

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        path = self._path(checked_key(key))
        if os.path.lexists(path):
            raise self._taken(key, path)
        with self._written(key, pieces) as (temporary, size):
            self._publish(key, temporary, path)
        return size

    def get(self, key: str, limit: int | None = None) -> bytes:
        with self._opened(key) as (descriptor, size):
            if limit is not None and size > limit:
                raise over_limit(key, size, limit)
            return self._read(key, descriptor, 0, size)

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return b"".join(self.stream_range(key, range))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        with self._opened(key) as (descriptor, size):
            if range.start >= size:
                raise beyond_end(key, range, size)
            position, stop = range.start, min(range.stop, size)
            while position < stop:
                piece = self._read(key, descriptor, position, min(position + piece_bytes, stop))
                position += len(piece)
                yield piece

    def read_into(self, key: str, start: int, target: memoryview) -> int:
        """Fill ``target`` from ``start`` on and return the number of bytes read, which is smaller at the object's end.

        The kernel also reads later bytes ahead into the page cache. The file is not mapped, because reading a mapping
        of a file that shrank kills the process. Raises ObjectNotFound, RangeNotSatisfiable, Unavailable.
        """
        with self._opened(key) as (descriptor, size):
            if start >= size:
                raise beyond_end(key, ByteRange(start, start + len(target)), size)
            filled, size = 0, min(len(target), size - start)
            while filled < size:
                with self._typed(key):
                    count = os.preadv(descriptor, [target[filled:size]], start + filled)
                if not count:
                    raise self._shrank(key)
                filled += count
            with self._typed(key):
                os.posix_fadvise(descriptor, start + AHEAD_BYTES, size, os.POSIX_FADV_WILLNEED)
        return filled

    def head(self, key: str) -> ObjectInfo:
        with self._typed(checked_key(key)):
            status = os.lstat(self._path(key))
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFound("no such object", key=key, store=self.description)
        return _info(key, status)

    def drop_cached(self, key: str) -> None:
        with self._opened(key) as (descriptor, _), self._typed(key):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._check_mark()
        return self._walk("", prefix, start_after or "")

    def delete(self, key: str) -> None:
        path = self._path(checked_key(key))
        try:
            with self._typed(key), self._held(path):
                os.unlink(path)
                # If a power loss undid the delete, an orphan would remain that no fact names.
                fsync_folder(os.path.dirname(path))
        except ObjectNotFound:
            return

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        path = self._path(checked_key(key))
        with self._written(key, (data,)) as (temporary, _), self._typed(key), self._held(path):
            if self.get(key) != previous:
                return False
            os.replace(temporary, path)  # the new object exists from here on
            fsync_folder(os.path.dirname(path))
        return True

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield the files of killed writers, without a key. The files of running writers are locked and left out."""
        self._check_mark()
        with self._typed(""):
            names = () if prefix else sorted(os.listdir(self._temporary))
        for name in names:
            status: os.stat_result | None = None
            with contextlib.suppress(OSError), self._unlocked(name) as descriptor:
                status = os.fstat(descriptor)
            if status is not None:  # the lock is released by now, so that the caller may abort it
                yield UnfinishedUpload("", name, TimestampMs(status.st_mtime_ns // 1_000_000))

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        if os.path.basename(upload.upload_id) != upload.upload_id:
            raise InvalidRequest("not an upload of this store", upload=upload.upload_id, store=self.description)
        with contextlib.suppress(OSError), self._unlocked(upload.upload_id):
            os.unlink(os.path.join(self._temporary, upload.upload_id))

    def close(self) -> None:
        """Do nothing, because the store keeps no file open."""

    @contextlib.contextmanager
    def _held(self, path: str) -> Iterator[None]:
        """Let only one `replace_if_same` or `delete` of an object run, across processes, by a lock on its file.

        Without the lock, a replacement between the compare and rename of another one would be lost, and a replacement
        after a delete would re-create the object.
        """
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # NFS locks no descriptor for reading
            except PermissionError:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):  # else the file was replaced in the meantime
                    yield
                    return
            finally:
                os.close(descriptor)

    def _path(self, key: str) -> str:
        path = self._root
        *folders, name = key.split("/")
        for folder in folders:
            path = os.path.join(path, folder)
            if os.path.islink(path):
                raise AccessDenied("a symbolic link leads out of the store's folder", key=key, store=self.description)
        return os.path.join(path, name)

    @contextlib.contextmanager
    def _written(self, key: str, pieces: Iterable[Data]) -> Iterator[tuple[str, int]]:
        """Write a hidden file, fsync it, and yield its path and size. It is locked until the end, and then removed."""
        size = 0
        with self._typed(key, writing=True):
            descriptor, temporary = self._new_file()
        try:
            file = DirectFile(descriptor)
            for piece in pieces:  # only the store's errors are translated, not the iterator's
                with self._typed(key, writing=True):
                    size += file.write(piece)
            with self._typed(key, writing=True):
                file.sync()
            yield temporary, size
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            os.close(descriptor)

    def _new_file(self) -> tuple[int, str]:
        while True:
            descriptor, path = tempfile.mkstemp(dir=self._temporary)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else another process removed it before it was locked
                os.fchmod(descriptor, 0o644)
                return descriptor, path
            os.close(descriptor)

    def _remove_leftovers(self) -> None:
        with contextlib.suppress(StorageUnavailable):  # the folder is missing: operations report that
            for upload in tuple(self.unfinished_uploads()):
                self.abort_upload(upload)

    @contextlib.contextmanager
    def _unlocked(self, name: str) -> Iterator[int]:
        """Lock an unfinished file and yield its descriptor. Raises OSError if its writer runs, or without the file."""
        descriptor = os.open(os.path.join(self._temporary, name), os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    def _publish(self, key: str, temporary: str, path: str) -> None:
        folder = os.path.dirname(path)
        try:
            with self._typed(key, writing=True):
                self._make_folders(folder)
                os.link(temporary, path)  # the commit point: the object exists from here on
        except ObjectExists as error:
            raise self._taken(key, path) from error
        with self._typed(key, writing=True):
            fsync_folder(folder)
            above = list[str]()
            while folder not in self._durable:  # another process may have made it, and not have synced it yet
                above.append(folder)
                folder = os.path.dirname(folder)
                fsync_folder(folder)
            self._durable.update(above)

    def _make_folders(self, folder: str) -> None:
        """Create folders below the store's folder, but never that one: its disk may have been unmounted since."""
        if folder == self._root or os.path.isdir(folder):
            return
        self._make_folders(os.path.dirname(folder))
        self._check_mark()
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
            self._durable.discard(folder)  # a person removed it, or another disk is mounted

    def _taken(self, key: str, path: str) -> TierstateError:
        if os.path.isfile(path):
            return ObjectExists("object exists", key=key, store=self.description)
        return InvalidRequest(
            "a key cannot lie above or below another object's key in a folder", key=key, store=self.description
        )

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """Yield an object's open descriptor and its size in bytes."""
        with self._typed(checked_key(key)):
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectNotFound("no such object", key=key, store=self.description)
            yield descriptor, status.st_size
        finally:
            os.close(descriptor)

    def _read(self, key: str, descriptor: int, start: int, stop: int) -> bytes:
        pieces: list[bytes] = []  # one read call returns at most 2 GiB
        while start < stop:
            with self._typed(key):
                piece = os.pread(descriptor, stop - start, start)
            if not piece:
                raise self._shrank(key)
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _shrank(self, key: str) -> StorageUnavailable:
        return StorageUnavailable("object shrank while it was read", key=key, store=self.description)

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield objects in key order: depth first, with folders sorted as ``name/``. Memory: one folder per level."""
        for name, entry in self._entries(folder, prefix):
            key = folder + name
            if name.endswith("/"):
                below_prefix = key.startswith(prefix) or prefix.startswith(key)
                if below_prefix and (key > after or after.startswith(key)):
                    yield from self._walk(key, prefix, after)
            elif key > after and key.startswith(prefix):
                with contextlib.suppress(FileNotFoundError):  # deleted since the folder was read
                    yield _info(key, entry.stat(follow_symlinks=False))

    def _entries(self, folder: str, prefix: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """Return the sorted entries of a folder whose key begins with ``prefix``, or is itself a beginning of it."""
        matches = []
        with self._typed(folder), os.scandir(os.path.join(self._root, folder)) as entries:
            for entry in entries:
                key = folder + entry.name
                if not (key.startswith(prefix) or prefix.startswith(key)):
                    continue
                with contextlib.suppress(InvalidRequest):
                    checked_key(key)
                    if entry.is_dir(follow_symlinks=False):
                        matches.append((entry.name + "/", entry))
                    elif entry.is_file(follow_symlinks=False):
                        matches.append((entry.name, entry))
        return sorted(matches, key=lambda match: match[0])

    def _check_mark(self) -> None:
        if not os.path.isdir(self._temporary if self._marked else self._root):
            raise StorageUnavailable(
                "the store's folder is gone, not mounted, or never made (before agents use it: tierstate init)",
                store=self.description,
            )

    @contextlib.contextmanager
    def _typed(self, key: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translated(error, key, writing) from error

    def _translated(self, error: OSError, key: str, writing: bool) -> TierstateError:
        facts = {"key": key or None, "store": self.description, "reason": error.strerror}
        if error.errno in _FULL:
            return StorageFull("the store has no room", **facts)
        if error.errno in _DENIED:
            return AccessDenied("the file system refuses", **facts)
        if error.errno == errno.EEXIST:
            return ObjectExists("object exists", **facts)
        if error.errno in _NOT_A_NAME and writing:
            return InvalidRequest("this key cannot be a file here", **facts)
        if error.errno in _NOT_A_NAME or error.errno == errno.ENOENT:
            self._check_mark()
            if not writing:
                return ObjectNotFound("no such object", **facts)
        return StorageUnavailable("the file system failed", **facts)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, TimestampMs(status.st_mtime_ns // 1_000_000))


def fsync_folder(folder: str | Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
