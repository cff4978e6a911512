"""A TLS context keeps up with its files, and never uses half of a change."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.api.certificates import certificates
from tierstate.runtime.live_tls import LiveTls


class Files:
    """A certificate and its key, in two files."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.made = [self._made(folder / name) for name in ("first", "second")]

    def _made(self, folder: Path) -> tuple[bytes, bytes]:
        folder.mkdir()
        whole = certificates(folder, "server").with_name("server.pem").read_bytes()
        key, mark, certificate = whole.partition(b"-----BEGIN CERTIFICATE-----")
        return mark + certificate, key

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        return made


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.certificate.write_bytes(made.made[0][0])
    made.key.write_bytes(made.made[0][1])
    return made


def shown(server: ssl.SSLContext) -> bytes:
    """Return the certificate that the server shows to a client, as PEM."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there)
    ends = [client, server.wrap_bio(there, back, server_side=True)]
    for end in ends * 4:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"").encode()


def test_new_connections_are_made_by_the_files_of_now(files: Files) -> None:
    context = LiveTls(files.context, (files.certificate, files.key))
    assert shown(context).split() == files.made[0][0].split()
    files.certificate.write_bytes(files.made[1][0])
    files.key.write_bytes(files.made[1][1])
    assert shown(context).split() == files.made[1][0].split()


def test_while_one_file_of_two_is_replaced_the_pair_before_goes_on(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    context = LiveTls(files.context, (files.certificate, files.key))
    files.certificate.write_bytes(files.made[1][0])
    for _ in range(2):
        assert shown(context).split() == files.made[0][0].split()
    assert len(caplog.records) == 1
    files.key.write_bytes(files.made[1][1])
    assert shown(context).split() == files.made[1][0].split()


def test_each_new_context_is_prepared_like_the_first(files: Files) -> None:
    context = LiveTls(files.context, (files.certificate, files.key))
    names: list[str | None] = []

    def prepare(made: ssl.SSLContext) -> None:
        made.sni_callback = lambda connection, name, by: names.append(name)

    context.each(prepare)
    shown(context)
    files.certificate.touch()
    shown(context)
    assert len(names) == 2
