"""``tierstate certify``: a certificate, or the broken promise with its price; nothing is left in the store."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tierstate.storage.contract import STORE_PROMISES

pytestmark = pytest.mark.extended

Certify = Callable[..., subprocess.CompletedProcess[str]]
NAMES = [promise.name for promise in STORE_PROMISES]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}

NO_CREDENTIALS = {
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    "AWS_CONFIG_FILE": "/nowhere",
}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIERSTATE_", "AWS_"))}
    return kept | more


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tierstate.cli.main", "certify", *arguments]


@pytest.fixture
def certify(tmp_path: Path) -> Certify:
    """Return a function that runs the program itself, in an empty folder."""

    def call(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(arguments), cwd=tmp_path, env=environment(**environ), capture_output=True, text=True, timeout=120
        )

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "mine").write_bytes(b"mine")
    return folder


@pytest.fixture
def endpoint() -> Iterator[str]:
    """Run an S3 server with the bucket ``bucket``; yield its endpoint."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client.create_bucket(Bucket="bucket")
    client.close()
    yield url
    server.stop()


def objects(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_store_that_keeps_every_promise_gets_a_certificate(certify: Certify, folder: Path) -> None:
    done = certify(folder.as_uri())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"store   {folder.as_uri()}"
    assert [promise for line in lines[1:-1] for promise in re.findall(r"^kept    (.+?) +[0-9.]+ s$", line)] == NAMES
    assert lines[-1].startswith(f"CERTIFIED: {len(NAMES)} of {len(NAMES)} promises kept, 0 broken, 0 not checked, at 2")
    assert objects(folder) == ["mine"]


def test_with_json_the_certificate_is_one_document(certify: Certify, folder: Path) -> None:
    done = certify("--json", "--promise", "ranges are exact", folder.as_uri())
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["store"] == folder.as_uri()
    assert document["certified"] is False  # one promise alone is no certificate
    assert [(row["promise"], row["kept"]) for row in document["promises"]] == [("ranges are exact", True)]
    assert document["not_checked"] == [name for name in NAMES if name != "ranges are exact"]
    assert document["left_behind"] == []
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["at"])


def test_an_unknown_promise_is_a_wrong_call_with_a_hint(certify: Certify, folder: Path) -> None:
    done = certify("--promise", "ranges are exac", folder.as_uri())
    assert done.returncode == 2
    assert "did_you_mean='ranges are exact'" in done.stderr
    assert objects(folder) == ["mine"]


def test_a_dry_run_touches_nothing_and_counts(certify: Certify, tmp_path: Path) -> None:
    done = certify("--dry-run", "--json", (tmp_path / "nowhere").as_uri())
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert [row["promise"] for row in document["promises"]] == NAMES
    assert document["objects"] > 1000
    assert document["bytes"] > 40_000_000
    assert document["requests"] > document["objects"]
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_does_not_answer_is_unavailable(certify: Certify) -> None:
    flags = ("--set", "store.endpoint=http://127.0.0.1:1", "--set", "store.connect_timeout=1s", "--timeout", "60s")
    done = certify("s3://bucket", *flags, **CREDENTIALS)
    assert done.returncode == 3
    assert "BROKEN" not in done.stdout


def test_a_store_that_denies_is_exit_code_5(certify: Certify, tmp_path: Path) -> None:
    done = certify("s3://bucket", "--set", "store.endpoint=http://127.0.0.1:1", HOME=str(tmp_path), **NO_CREDENTIALS)
    assert done.returncode == 5
    assert "no credentials" in done.stderr


def test_a_bucket_that_does_not_exist_is_a_wrong_call(certify: Certify, endpoint: str) -> None:
    done = certify("s3://no-such-bucket", "--set", f"store.endpoint={endpoint}", **CREDENTIALS)
    assert done.returncode == 2
    assert "bucket" in done.stderr


@pytest.fixture
def breaking_endpoint(endpoint: str) -> Iterator[str]:
    """Run a proxy that obeys no range, and whose HEAD reports another size than a GET; yield its endpoint."""
    program = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from tests.storage import breakers as b, breaking_proxy\n"
        "proxy = breaking_proxy.BreakingProxy(sys.argv[2])\n"
        "proxy.breaker = lambda q, s: b.heads_another_size(q, lambda r: b.ignores_ranges(r, s))\n"
        "print(proxy.endpoint, flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = [sys.executable, "-c", program, str(Path(__file__).parents[2]), endpoint]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        yield proxy.stdout.readline().strip()
        proxy.kill()


def test_the_first_broken_promise_is_shown_with_price_and_remedy(certify: Certify, breaking_endpoint: str) -> None:
    done = certify("s3://bucket/p", "--set", f"store.endpoint={breaking_endpoint}", **CREDENTIALS)
    assert done.returncode == 1
    assert "the store breaks a promise. promise='a head is of what is read' store=s3://bucket/p" in done.stderr
    promise = next(promise for promise in STORE_PROMISES if promise.name == "a head is of what is read")
    assert re.search(r"^BROKEN  a head is of what is read ", done.stdout, re.MULTILINE)
    for text in (promise.why, promise.cost, promise.remedy):
        assert text in done.stdout
    assert f"NOT CERTIFIED: 2 of {len(NAMES)} promises kept, 1 broken, {len(NAMES) - 3} not checked" in done.stdout


def test_with_all_it_goes_on_after_the_first(certify: Certify, breaking_endpoint: str) -> None:
    chosen = ["a head is of what is read", "ranges are exact", "long keys are kept"]
    flags = [flag for name in chosen for flag in ("--promise", name)]
    done = certify("s3://bucket", "--all", "--json", *flags, f"--set=store.endpoint={breaking_endpoint}", **CREDENTIALS)
    rows = {row["promise"]: row for row in json.loads(done.stdout)["promises"]}
    assert done.returncode == 1
    assert {name: row["kept"] for name, row in rows.items()} == dict(zip(chosen, (False, False, True), strict=True))
    assert rows["ranges are exact"]["cost"]


def test_an_interrupted_run_removes_what_it_wrote(folder: Path, tmp_path: Path) -> None:
    run = command(["--promise", "a listing is complete and in order", folder.as_uri()])
    process = subprocess.Popen(run, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and len(objects(folder)) < 5:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert objects(folder) == ["mine"]
