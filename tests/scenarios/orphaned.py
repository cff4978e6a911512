"""A program that starts another one, prints its process id, and ends without it."""

import signal
import subprocess

if __name__ == "__main__":
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    signal.pause()
