"""The commands that people type."""
