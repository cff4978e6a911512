"""`/v1/tables`: the Iceberg tables that follow topics, as the settings' catalog has them."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from . import models
from .look import Look
from .parameters import check_parameters
from .service import caller_of
from .topics import Asked, answer

router = APIRouter(prefix="/v1/tables", tags=["tables"], dependencies=[Depends(check_parameters)])


@router.get("", response_model=models.TableList, summary="Tables that follow topics")
async def list_tables(request: Request, service: Asked) -> Response:
    caller = caller_of(request)
    names = frozenset(await service.topics(caller))
    sees_all = service.restricted(caller) is None

    def made(look: Look) -> models.TableList:
        rows = [models.Table.model_validate(row) for row in service.tables()]
        return models.TableList(
            tables=[
                row
                for row in rows
                # a table that cannot be loaded has no topic; a topic may have been deleted; a table may have several
                if all(each in names or (sees_all and service.serves(each)) for each in (row.topic or "").split(", "))
            ]
        )

    # a catalog that does not answer takes seconds, and metadata calls must not wait for it
    return await answer(service, made, service.pools.tables)
