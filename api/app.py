"""The FastAPI app: routes, error bodies, authentication (`auth.py`). It opens nothing; `open.py` passes a service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from ..broker.sasl import DEFAULT_MECHANISM
from . import models, pages, plans, records, tables, topic_page, topics
from .access_log import AccessLog
from .auth import Door
from .problems import add_problem_handlers
from .request_bodies import bounded
from .service import FetchService

DESCRIPTION = "Both tiers of Kafka topics as one log, over HTTP."
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": models.Problem, "description": "The call must change."},
    "5XX": {"model": models.Problem, "description": "Retry-After says when to try again, where that helps."},
}


def create_app(service: FetchService, mechanism: str = DEFAULT_MECHANISM, log: AccessLog | None = None) -> FastAPI:
    """Return the app. ``mechanism``: SASL mechanism for callers' passwords at the brokers. Raises as `auth.Door`.

    The app closes the service when its lifespan ends.
    """

    log = log or AccessLog(service.clock)
    door = Door(service.settings, service.clock, mechanism, service.pools.rights, log)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = _App(
        before=lambda routed: door.before(bounded(routed, service.memory, service.settings.head_timeout)),
        title="tierstate gateway",
        version=version("tierstate"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # asked for at each call
    )
    app.state.service = service
    app.include_router(topics.router, responses=_PROBLEMS)
    app.include_router(topic_page.router, responses=_PROBLEMS)
    app.include_router(records.router, responses=_PROBLEMS)
    app.include_router(plans.router, responses=_PROBLEMS)
    app.include_router(tables.router, responses=_PROBLEMS)
    app.include_router(pages.router)
    add_problem_handlers(app)
    return app


class _App(FastAPI):
    """A FastAPI app behind middleware. ``before`` wraps the routing once, and every call enters that middleware."""

    def __init__(self, before: Callable[[ASGIApp], ASGIApp], **more: Any) -> None:
        super().__init__(**more)
        self._entered = before(super().__call__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._entered(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, with the schema of a binary record, which no response model has."""
        if self.openapi_schema is None:
            document = super().openapi()
            record = models.BinaryRecord.model_json_schema(ref_template="#/components/schemas/{model}")
            document["components"]["schemas"] |= {**record.pop("$defs"), "BinaryRecord": record}
            self.openapi_schema = document
        return self.openapi_schema
