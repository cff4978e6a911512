"""The HTTP fetch gateway."""
