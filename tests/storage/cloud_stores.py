"""The clouds' emulators, one process each for a whole run, and stores in a bucket or container of the test's own.

Where the installer of an emulator is missing its tests are skipped with the reason; with TIERSTATE_CI=1 they fail.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import ContainerClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.servers.needs import needs
from tests.servers.store_programs import AZURITE, FAKE_GCS
from tests.servers.store_server import azurite, fake_gcs_server
from tests.twins.manual_clock import ManualClock
from tierstate.storage.azure import AzureStore
from tierstate.storage.gcs import GcsStore
from tierstate.storage.options import StoreOptions

from .faulty_proxy import FaultyProxy

ACCOUNT = "devstoreaccount1"
# Microsoft's documentation prints these for every azurite.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
KEY = (ACCOUNT, ACCOUNT_KEY)
_names = itertools.count(1)


@pytest.fixture(scope="session")
def gcs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the endpoint of a fake-gcs-server on a free loopback port."""
    needs(FAKE_GCS)
    with fake_gcs_server(tmp_path_factory.mktemp("fake-gcs-server")) as server:
        yield server.url


@pytest.fixture
def gcs_bucket(gcs_endpoint: str) -> str:
    """Return a bucket of the test's own."""
    anonymous: Any = AnonymousCredentials
    name = f"bucket-{os.getpid()}-{next(_names)}"
    client = storage.Client("p", anonymous(), client_options={"api_endpoint": gcs_endpoint})
    client.create_bucket(name)
    client.close()
    return name


@pytest.fixture
def gcs_store(gcs_endpoint: str, gcs_bucket: str) -> Iterator[GcsStore]:
    store = GcsStore(gcs_bucket, "some/prefix", StoreOptions(gcs_endpoint))
    yield store
    store.close()


@pytest.fixture
def gcs_proxy(gcs_endpoint: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(gcs_endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def broken_gcs_store(gcs_proxy: FaultyProxy, gcs_bucket: str) -> Iterator[GcsStore]:
    """Yield a store behind the proxy; three attempts, ten seconds for throttling, and its waiting takes no time."""
    options = StoreOptions(gcs_proxy.endpoint, max_attempts=3, throttle_timeout=10)
    store = GcsStore(gcs_bucket, "", options, ManualClock())
    yield store
    store.close()


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the account's URL at an azurite on a free loopback port."""
    needs(AZURITE)
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield f"{server.url}/{ACCOUNT}"


@pytest.fixture
def azure_client(azure_endpoint: str) -> Iterator[ContainerClient]:
    """Yield a container of the test's own, by Microsoft's client."""
    name = f"container-{os.getpid()}-{next(_names)}"
    with ContainerClient(azure_endpoint, name, AzureNamedKeyCredential(ACCOUNT, ACCOUNT_KEY)) as client:
        client.create_container()
        yield client


@pytest.fixture
def azure_store(azure_endpoint: str, azure_client: ContainerClient) -> Iterator[AzureStore]:
    options = StoreOptions(azure_endpoint, credentials=KEY)
    store = AzureStore(azure_client.container_name, "some/prefix", options)
    yield store
    store.close()


@pytest.fixture
def azure_proxy(azure_endpoint: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(azure_endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def broken_azure_store(azure_proxy: FaultyProxy, azure_client: ContainerClient) -> Iterator[AzureStore]:
    """A store behind the proxy; two attempts, ten seconds for throttling; only Microsoft's own waiting takes time."""
    where = f"{azure_proxy.endpoint}/{ACCOUNT}"
    store = AzureStore(
        azure_client.container_name,
        "",
        StoreOptions(where, credentials=KEY, max_attempts=2, throttle_timeout=10),
        ManualClock(),
    )
    yield store
    store.close()
