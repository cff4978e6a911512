"""Copied segments: three objects, byte-compatible with the version 1 format of Aiven's plugin."""
