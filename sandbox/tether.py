"""Run a program that dies when its parent dies, even if the parent is killed with SIGKILL.

    python tether.py PARENT_PID PROGRAM ARGUMENT…

This script uses the standard library only and is run by its path, because it must start in milliseconds. It asks Linux
for SIGKILL at the parent's death and executes the program in the same process. The kernel watches the parent's *thread*
that started this script, so that thread must live as long as the program. Other systems only run the program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        if os.getppid() != parent:  # the parent died before prctl
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
