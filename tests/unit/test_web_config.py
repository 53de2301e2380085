"""The web configuration file: what of exporter-toolkit's known good and bad files is taken, and what it then does."""

import socket
import ssl
from contextlib import AbstractContextManager
from pathlib import Path

import bcrypt
import httpx
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from exporter.web.config_file import WebConfigError, WebConfigFile
from exporter.web.server import WebServer
from tests.monitors import served
from tests.plain_http import NO_TLS, get
from tests.unit.test_web import EXPOSITION, Shown

PASSWORD = "correct horse"  # noqa: S105 - of this test
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
CERT = "tls_server_config: {cert_file: server.crt, key_file: server.key"
REQUIRED = f"{CERT}, client_auth_type: RequireAndVerifyClientCert"
CA = trustme.CA()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a certificate and key for localhost, and the CA of both sides."""
    write_certificate(tmp_path)
    CA.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "empty").touch()
    return tmp_path


def write_certificate(folder: Path) -> int:
    """Write a new certificate and key for localhost; return its serial number."""
    made = CA.issue_cert("localhost", "127.0.0.1")
    made.cert_chain_pems[0].write_to_path(folder / "server.crt")
    made.private_key_pem.write_to_path(folder / "server.key")
    return serial_of(made.cert_chain_pems[0].bytes().decode())


def serial_of(pem: str) -> int:
    """Return the serial number of a certificate."""
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def write(folder: Path, text: str) -> Path:
    """Write a web configuration file."""
    file = folder / "web.yml"
    file.write_text(text, encoding="utf-8")
    return file


GOOD = {
    "no users": "basic_auth_users: {}\n",
    "noAuth": f"{CERT}}}",
    "requestclientcert": f"{CERT}, client_auth_type: RequestClientCert}}",
    "verifyclientcertifgiven": f"{CERT}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt}}",
    "requireandverifyclientcert": f"{REQUIRED}, client_ca_file: ca.crt}}",
    "users": f"{CERT}}}\nbasic_auth_users: {{alice: '{HASH}'}}",
    "users_noTLS": f"basic_auth_users: {{alice: '{HASH}'}}",
}
BAD = {
    "empty": ("", "web.yml is empty: to serve without TLS and users, leave web.config_file out"),
    "a setting without a value": ("tls_server_config: {cert_file, key_file: server.key}", "cert_file: has no value"),
    "junk_key": ("tls_server_confi: {}", "tls_server_confi: is not supported"),
    "not YAML": ("tls_server_config: {", "web.yml:1 is not valid YAML"),
    "noAuth": ("tls_server_config: {cert_file: server.crt}", "tls_server_config.key_file: is missing"),
    "another key": ("tls_server_config: {cert_file: server.crt, key_file: ca.crt}", "client_ca_file cannot be used: "),
    "clientCAs_missing": (f"{REQUIRED}}}", "must hold client_ca_file with"),
    "clientCAs_invalid": (f"{REQUIRED}, client_ca_file: no.crt}}", "No such file or directory"),
    "clientCAs without a policy": (f"{CERT}, client_ca_file: ca.crt}}", "and only then"),
    "auth_user_list_invalid": (
        "basic_auth_users: {alice: secret-in-the-clear}",
        "the password of 'alice' must be a bcrypt hash: `htpasswd -nBC 10 alice`",
    ),
    "client_auth_type": (f"{CERT}, client_auth_type: Often}}", "tls_server_config.client_auth_type: Input should be"),
    "allowed names": (f"{REQUIRED}, client_ca_file: ca.crt, client_allowed_sans: [a]}}", "client_allowed_sans: is not"),
    "wrongTLSVersion": (f"{CERT}, min_version: TLS111}}", "tls_server_config.min_version: Input should be 'TLS12'"),
    "ciphers": (f"{CERT}, cipher_suites: [TLS_RSA_WITH_RC4]}}", "cipher_suites: is not supported: leave it out"),
    "headers": ("http_server_config: {headers: {}}", "http_server_config: is not supported: leave it out"),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_good_file_is_taken(folder: Path, text: str) -> None:
    """A file with each of the settings that are supported can be used."""
    config = WebConfigFile(write(folder, text)).current()
    assert (config.tls is not None) == ("cert_file" in text)


@pytest.mark.parametrize(("text", "rule"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_rule(folder: Path, text: str, rule: str) -> None:
    """A file that cannot be used is named, with the setting and the rule, and without what may be a secret."""
    file = write(folder, text)
    with pytest.raises(WebConfigError) as caught:
        WebConfigFile(file)
    assert str(caught.value).startswith(str(file)) and rule in str(caught.value)
    assert "secret-in-the-clear" not in str(caught.value) and "\n" not in str(caught.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked(folder: Path) -> None:
    """OpenSSL would ask for the password at the terminal, where nobody is."""
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    form, encrypted = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    (folder / "server.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encrypted))
    with pytest.raises(WebConfigError, match="the key is encrypted; it must be in the clear"):
        WebConfigFile(write(folder, f"{CERT}}}"))


def serving(folder: Path, text: str) -> AbstractContextManager[WebServer]:
    """A server with this web configuration."""
    return served(Shown(), WebConfigFile(write(folder, text)))


def context(*, client: str | None = None) -> ssl.SSLContext:
    """A client's TLS, with a certificate for ``client`` where one is given."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(made)
    if client is not None:
        CA.issue_cert(client).configure_cert(made)
    return made


def scrape(server: WebServer, tls: ssl.SSLContext | None = None, **given: object) -> httpx.Response:
    """One scrape, over TLS where that is given."""
    scheme = "http" if tls is None else "https"
    return httpx.get(f"{scheme}://localhost:{server.port}/metrics", verify=tls or NO_TLS, timeout=20, **given)  # type: ignore[arg-type]


def test_tls_is_served_from_the_version_that_is_set(folder: Path) -> None:
    """With min_version TLS13 a client of TLS 1.2 is refused, and one of 1.3 is answered."""
    with serving(folder, f"{CERT}, min_version: TLS13}}") as server:
        assert server.scheme == "https"
        assert scrape(server, context()).content == EXPOSITION
        older = context()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.ConnectError):
            scrape(server, older)


def test_only_clients_with_a_certificate_of_the_ca_are_answered(folder: Path) -> None:
    """None and one of another CA end the connection."""
    with serving(folder, GOOD["requireandverifyclientcert"]) as server:
        assert scrape(server, context(client="scraper")).status_code == 200
        stranger = context()
        trustme.CA().issue_cert("scraper").configure_cert(stranger)
        for refused in (context(), stranger):
            with pytest.raises(httpx.TransportError):
                scrape(server, refused)


def test_a_certificate_that_is_replaced_is_shown_from_the_next_connection_on(folder: Path) -> None:
    """Without a restart; while certificate and key do not fit, the pair before them stays in force."""

    def shown(port: int) -> int:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context().wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            der = tls.getpeercert(binary_form=True)
            assert der is not None
            return serial_of(ssl.DER_cert_to_PEM_cert(der))

    with serving(folder, f"{CERT}}}") as server:
        first = shown(server.port)
        certificate = (folder / "server.crt").read_bytes()
        second = write_certificate(folder)
        assert first != second == shown(server.port)
        (folder / "server.crt").write_bytes(certificate)
        assert shown(server.port) == second, "a key of another certificate is not taken"
        write(folder, "junk")
        assert shown(server.port) == second


@pytest.mark.parametrize("cut", [0, "\nbasic_auth_users", "{cert_file"])
def test_a_file_that_was_cut_opens_the_exporter_to_nobody(folder: Path, cut: str | int) -> None:
    """What was read before stays in force, and the metric is told."""
    whole = f"{CERT}}}\nbasic_auth_users: {{alice: '{HASH}'}}\n"
    took: list[bool] = []
    file = WebConfigFile(write(folder, whole), took.append)
    write(folder, whole[: cut if isinstance(cut, int) else whole.index(cut)])
    config = file.current()
    assert config.tls is not None
    assert (dict(config.users), took) == ({"alice": HASH}, [False])


def test_users_are_asked_for_their_password(folder: Path) -> None:
    """Only the right password of a named user is let in, on every path; others get 401 and how to ask."""
    with serving(folder, f"basic_auth_users: {{alice: '{HASH}'}}") as server:
        assert scrape(server, auth=("alice", PASSWORD)).status_code == 200
        refused = scrape(server)
        assert (refused.status_code, refused.text) == (401, "Unauthorized\n")
        assert refused.headers["www-authenticate"].startswith("Basic realm=")
        for user, password in (("alice", "wrong"), ("bob", PASSWORD), ("alice", ""), ("alice", "x" * 100), ("", "")):
            assert scrape(server, auth=(user, password)).status_code == 401
        for header in ("Basic", "Basic %%%", "Bearer abc", "Basic /w=="):
            assert scrape(server, headers={"Authorization": header}).status_code == 401
        for path in ("/", "/-/healthy", "/no-such-page"):
            assert get(f"http://{server.address}{path}").status_code == 401


@pytest.mark.parametrize("tls", ["", f"{CERT}, min_version: TLS13}}", f"{CERT}, client_auth_type: RequestClientCert}}"])
def test_what_openssl_takes_at_the_start_alone_needs_a_restart(folder: Path, tls: str) -> None:
    """A server goes on as it was started, says what to do, and tells the metric."""
    took: list[bool] = []
    users = f"\nbasic_auth_users: {{alice: '{HASH}'}}"
    file = WebConfigFile(write(folder, f"{CERT}}}{users}"), took.append)
    write(folder, f"{tls}{users}")
    assert file.current().fixed == ("NoClientCert", "TLS12", None) and took == [False]
