"""Read from the settings how to reach the schema registry."""

from __future__ import annotations

from ..runtime.registry_settings import Registry
from .schema_registry import RegistryAccess


def registry_access(settings: Registry) -> RegistryAccess | None:
    """Return the registry's address and credentials, or None if no registry is set."""
    if not settings.url:
        return None
    return RegistryAccess(
        settings.url,
        settings.user,
        "" if settings.password is None else settings.password.get_secret_value(),
        settings.ca,
        settings.certificate,
        settings.key,
        settings.timeout,
    )
