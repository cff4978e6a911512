"""The leader role: copy, trim and (later) expire what this broker leads."""
