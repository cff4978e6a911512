"""The schema registry's section of `settings.py`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from .section import Section
from .setting_types import Duration, HttpUrl, Secret, Size


class Registry(Section):
    """A schema registry, for a gateway that shows values as JSON, and for exports and tables of typed columns."""

    url: HttpUrl = Field(default="", description="Its address, the only one that is asked; empty: none.")
    user: str = Field(default="", description="Name for HTTP Basic; empty: none is sent.")
    password: Secret | None = Field(default=None, description="Password, or the secret of an API key, beside `user`.")
    ca: Path | None = Field(default=None, description="Authorities of its certificate, PEM; unset: the system's.")
    certificate: Path | None = Field(default=None, description="Our certificate, where it asks for one, PEM.")
    key: Path | None = Field(default=None, description="Private key of `certificate`, PEM.")
    timeout: Duration = Field(
        default=3.0,
        gt=0,
        le=60,
        description="How long one answer of a gateway waits for all its schemas, and an export or a table for one.",
    )
    cache: Size = Field(default=16 * 2**20, description="Bytes of schemas that a gateway keeps.")

    @model_validator(mode="after")
    def _together(self) -> Registry:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are needed together")
        return self
