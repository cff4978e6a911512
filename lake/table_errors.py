"""Turns errors of pyiceberg, its catalogs and its file systems into errors of tierstate."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)

from ..state.errors import AccessDenied, CorruptData, InvalidRequest, StorageFull, StorageUnavailable


@contextmanager
def foreign(**facts: Any) -> Iterator[None]:
    """Convert errors of a catalog and of a table's file system into errors of tierstate."""
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise InvalidRequest("no such table in the catalog", **facts) from error
    except (ForbiddenError, UnauthorizedError, PermissionError) as error:
        raise AccessDenied("the catalog or the table's store refuses", **facts, reason=str(error)) from error
    except FileNotFoundError as error:
        raise CorruptData("a file of the table is missing", **facts, reason=str(error)) from error
    except ValidationException as error:
        raise CorruptData("a file that is to go is none of the table's", **facts, reason=str(error)) from error
    except pa.ArrowInvalid as error:
        raise CorruptData("a file of the table is damaged", **facts, reason=str(error)) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise AccessDenied("the catalog's credentials are missing", **facts, reason=str(error)) from error
    except ClientError as error:  # from Glue
        denied = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 403
        refused = denied or error.response.get("Error", {}).get("Code", "").startswith("AccessDenied")
        kind = AccessDenied if refused else StorageUnavailable
        raise kind("the catalog refuses a request", **facts, reason=str(error)) from error
    except _outages() as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StorageFull("the table's store has no room", **facts) from error
        raise StorageUnavailable(
            "the catalog or the table's files cannot be read or written now", **facts, reason=repr(error)
        ) from error


def _outages() -> tuple[type[Exception], ...]:
    """Return the errors of an outage. Only some catalogs load SQLAlchemy; other catalogs and tasks start without it."""
    module = sys.modules.get("sqlalchemy.exc")
    return (RESTError, BotoCoreError, OSError, *(() if module is None else (module.SQLAlchemyError,)))
