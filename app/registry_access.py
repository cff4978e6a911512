"""temporary"""

from __future__ import annotations

from ..runtime.settings import Settings
from ..values.schema_registry import RegistryAccess


def registry_access(settings: Settings) -> RegistryAccess | None:
    """None: no registry is set."""
    said = settings.registry
    if not said.url:
        return None
    password = "" if said.password is None else said.password.get_secret_value()
    return RegistryAccess(said.url, said.user, password, said.ca, said.certificate, said.key, said.timeout)
