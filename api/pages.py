"""The console and the documentation. They load only files of `console/`, so they work offline."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from .topics import Asked

router = APIRouter(include_in_schema=False)

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_MODULES = "ask axis bars console dom facts groups overview place records segments tables topic values".split()
ASSETS = frozenset({"console.css", "docs.js", "icon.svg", *(f"{name}.js" for name in _MODULES)})


_DECODED = b'<option value="decoded"'
"""The console's option for decoded records. It is preselected if the gateway has a schema registry."""


@cache
def _asset(name: str) -> bytes:
    return files(__package__).joinpath("console", name).read_bytes()


def _page(name: str) -> Response:
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(_asset(name), headers=_HEADERS, media_type=kind)


@router.get("/")
async def console(service: Asked) -> Response:
    answer = _page("index.html")
    if service.values is None:
        return answer
    chosen = _asset("index.html").replace(_DECODED, _DECODED + b" selected")
    return Response(chosen, headers=_HEADERS, media_type=answer.media_type)


@router.get("/docs")
async def docs() -> Response:
    return _page("docs.html")


@router.get("/console/{name}")
async def asset(name: str) -> Response:
    if name not in ASSETS:
        raise HTTPException(404, "no such page")
    return _page(name)
