"""Whole messages between two processes of one program, by sockets that have no name.

    control    the one socket that a process inherits from its parent; `hand_over` passes ends of others through it
    others     whoever wants to ask makes a pair, keeps one end, and hands the other one over

Pickled: both ends are the same code of the same installation, and nobody else can reach a socket without a name.
"""

from __future__ import annotations

import pickle
import socket
import struct

_LENGTH = struct.Struct(">Q")
_MOST = 64 * 1024
"""Bytes of one message through the control socket."""


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Ends of a control socket. Thread-safe: a message is one packet."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def hand_over(control: socket.socket, what: str) -> socket.socket:
    """Our end of a new pair, whose other end whoever reads ``control`` gets, with these words. OSError: nobody does."""
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
    """The next message, and the end that came with it. Empty: the other process has ended, or let go."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, _MOST, 1)
    except ConnectionError:
        return b"", None
    return message, socket.socket(fileno=descriptors[0]) if descriptors else None


def send_message(sock: socket.socket, message: object) -> None:
    """Raises OSError, also for a timeout."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(sock: socket.socket) -> object:
    """Raises OSError, also for a timeout; EOFError: the other end is closed."""
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
