"""A copied segment is three objects, byte-compatible with version 1 of the format of Aiven's plugin."""
