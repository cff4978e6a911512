"""Whole messages between two processes of one program, through sockets that have no name.

    control    the one socket that a process inherits from its parent; `hand_over` passes ends of others through it
    others     a process that asks makes a pair, keeps one end, and hands the other one over

Messages are pickled: both ends run the same code, and no other process can reach a socket without a name.
"""

from __future__ import annotations

import pickle
import socket
import struct

_LENGTH = struct.Struct(">Q")
_MOST = 64 * 1024
"""Largest message through the control socket, in bytes."""


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a control socket. Thread-safe: a message is one packet."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def hand_over(control: socket.socket, what: str) -> socket.socket:
    """Send one end of a new pair and ``what`` to the reader of ``control``; return our end. OSError: none reads it."""
    ours, theirs = socket.socketpair()
    try:
        socket.send_fds(control, [what.encode()], [theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours


def taken_over(control: socket.socket) -> tuple[bytes, socket.socket | None]:
    """Return the next message and the end that came with it. Empty: the other process has ended or closed its end."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, _MOST, 1)
    except ConnectionError:
        return b"", None
    return message, socket.socket(fileno=descriptors[0]) if descriptors else None


def send_message(sock: socket.socket, message: object) -> None:
    """Send a message. Raises OSError, also for a timeout."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(sock: socket.socket) -> object:
    """Return the next message. Raises OSError, also for a timeout, and EOFError if the other end is closed."""
    (size,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return pickle.loads(_exactly(sock, size))


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        taken = sock.recv_into(rest)
        if not taken:
            raise EOFError("the other end is closed")
        rest = rest[taken:]
    return data
