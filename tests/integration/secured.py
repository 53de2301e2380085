"""A broker with a listener for each way in, certificates made for it, and the rights that docs/security.md names."""

import json
import re
import shlex
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.message import Message
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from exporter.kafka.msk_iam import AwsIam
from tests.answers import Reply, replying
from tests.demo.broker import Broker, free_port
from tests.integration.watch import Watch, watching
from tests.waiting import until
from tests.workbench import Workbench

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
SECRET = "right-and-s3cr3t"  # noqa: S105 - of a broker that lives for these tests
WRONG = "wr0ng-but-secret"
DAY_AGO = time.time() // 1 - 86400
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "PASSWORD": "SASL_SSL",
    "CERTIFICATE": "SSL",
    "TOKEN": "SASL_SSL",
    "EXPIRED": "SSL",
}

Right = tuple[AclOperation, str]
"""An operation, and the topics or groups it is for."""

Properties = dict[str, str | int | float | bool | Path]


def documented_rights() -> list[Right]:
    """Every right on topics that docs/security.md names, from the command as it stands there."""
    return _documented("--topic")


def documented_group_rights() -> list[Right]:
    return _documented("--group")


def _documented(kind: str) -> list[Right]:
    text = SECURITY.read_text(encoding="utf-8")
    commands = re.findall(r"^(kafka-acls\.sh .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    [command] = [command for command in commands if f" {kind} " in command]
    arguments = shlex.split(command.replace("\\\n", " "))
    given = [(option, value) for option, value in pairwise(arguments) if option.startswith("--")]
    known = {"--bootstrap-server", "--add", "--allow-principal", "--operation", kind}
    assert {option for option, _ in given} == known, "a kind of right that these tests do not grant"
    operations = [AclOperation[_spelled(value)] for option, value in given if option == "--operation"]
    [names] = [value for option, value in given if option == kind]
    return [(operation, names) for operation in operations]


def _spelled(operation: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()


class Certificates:
    """Certificates of one CA, and of a CA that nobody knows, as PEM files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, unknown = trustme.CA(key_type=trustme.KeyType.ECDSA), trustme.CA(key_type=trustme.KeyType.ECDSA)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        for name, authority in (("ca", ours), ("unknown-ca", unknown)):
            authority.cert_pem.write_to_path(folder / f"{name}.crt")
        self._issue(ours, "server", "localhost")
        self._issue(ours, "server-expired", "localhost", until=yesterday)
        self._issue(ours, "liveness", "liveness")
        self._issue(ours, "liveness-expired", "liveness", until=yesterday)
        self._issue(unknown, "liveness-unknown", "liveness")

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def login(self, name: str) -> Properties:
        return {"ssl.certificate.location": self[f"{name}.crt"], "ssl.key.location": self[f"{name}.key"]}

    def _issue(self, authority: trustme.CA, name: str, identity: str, until: datetime | None = None) -> None:
        since = None if until is None else until - timedelta(days=1)
        issued = authority.issue_cert(identity, common_name=identity, not_before=since, not_after=until)
        # Java reads keys of this form alone, librdkafka any.
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        (self.folder / f"{name}.key").write_bytes(text)
        (self.folder / f"{name}.key").chmod(0o400)
        (self.folder / f"{name}.crt").write_bytes(chain)
        (self.folder / f"{name}.pem").write_bytes(text + chain)


class Secured:
    """A running broker, its certificates, and the ways in for the user ``liveness``."""

    def __init__(self, folder: Path, jars: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.certificates = Certificates(folder)
        self._ports = {name: free_port() for name in LISTENERS}
        self.broker = Broker(folder / "broker", jars=jars, properties=self._server())

    @cached_property
    def bench(self) -> Workbench:
        """Hands on the broker, with all rights."""
        return Workbench(self.broker.bootstrap)

    def address(self, listener: str, host: str = "localhost") -> str:
        """``host:port`` of a listener; its certificate is for localhost."""
        return f"{host}:{self._ports[listener]}"

    def by_password(
        self, mechanism: str = "SCRAM-SHA-512", user: str = "liveness", password: str = SECRET
    ) -> Properties:
        return {
            "bootstrap.servers": self.address("PASSWORD"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": self.certificates["ca.crt"],
        }

    def by_certificate(self, name: str = "liveness") -> Properties:
        return {
            "bootstrap.servers": self.address("CERTIFICATE"),
            "security.protocol": "SSL",
            "ssl.ca.location": self.certificates["ca.crt"],
            **self.certificates.login(name),
        }

    def by_token(self) -> Properties:
        """Properties of a client with a token, but for the token."""
        return {
            "bootstrap.servers": self.address("TOKEN"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "ssl.ca.location": self.certificates["ca.crt"],
        }

    def by_own_token(self) -> Properties:
        """Properties of a client that makes its own token, without a signature."""
        own = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=liveness"}
        return {**self.by_token(), **own}

    def by_oidc(self, url: str, secret: str | Path = SECRET) -> Properties:
        """Properties of a client that fetches its token from ``url``."""
        return {
            **self.by_token(),
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "liveness",
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": url,
        }

    def add_user(self, user: str) -> None:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        added = self.bench.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, scram, SECRET.encode())]
        )
        added[user].result(30)

    def grant(self, user: str, rights: Sequence[Right], kind: ResourceType = ResourceType.TOPIC) -> None:
        self.bench.grant(_rule(user, right, kind) for right in rights)

    def take_away(self, user: str, right: Right) -> None:
        [future] = self.bench.admin.delete_acls([_exactly(_rule(user, right, ResourceType.TOPIC))]).values()
        assert len(future.result(30)) == 1

    def rights(self) -> set[AclBinding]:
        whoever: Any = None  # the stubs say a text
        kinds = ResourceType.ANY, whoever, ResourcePatternType.ANY
        every = AclBindingFilter(*kinds, whoever, whoever, AclOperation.ANY, AclPermissionType.ANY)
        return set(self.bench.admin.describe_acls(every).result(30))

    def put_back(self, topics: set[str], rights: set[AclBinding]) -> None:
        """Leave these topics and rights, and no group."""
        admin, bench = self.bench.admin, self.bench
        for topic in admin.list_topics(timeout=30).topics.keys() - topics:
            if not topic.startswith("__"):
                bench.delete(topic)
        if groups := [group.group_id for group in admin.list_consumer_groups(request_timeout=30).result(30).valid]:
            for gone in admin.delete_consumer_groups(groups).values():
                gone.result(30)
        if further := self.rights() - rights:
            for deleted in admin.delete_acls([_exactly(right) for right in further]).values():
                deleted.result(30)
        until(lambda: self.rights() == rights, "rights as they were")

    def _server(self) -> Mapping[str, str]:
        kafka = "org.apache.kafka.common.security"
        plain = f'{kafka}.plain.PlainLoginModule required user_liveness="{SECRET}";'
        key, ca = self.certificates["server.pem"], self.certificates["ca.crt"]
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://{'127.0.0.1' if name == 'PLAINTEXT' else 'localhost'}:{port}"
                for name, port in self._ports.items()
                if name != "CONTROLLER"
            ),
            "controller.quorum.voters": f"1@127.0.0.1:{self._ports['CONTROLLER']}",
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": key,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca,
            "listener.name.password.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.password.plain.sasl.jaas.config": plain,
            "listener.name.password.scram-sha-512.sasl.jaas.config": f"{kafka}.scram.ScramLoginModule required;",
            "listener.name.certificate.ssl.client.auth": "required",
            "listener.name.certificate.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
            "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.token.oauthbearer.sasl.jaas.config": f"{kafka}.oauthbearer.OAuthBearerLoginModule required;",
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": self.certificates["server-expired.pem"],
        }


def _rule(user: str, right: Right, kind: ResourceType) -> AclBinding:
    operation, names = right
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, names, literal, f"User:{user}", "*", operation, allow)


def _exactly(rule: AclBinding) -> AclBindingFilter:
    who, what = (rule.principal, rule.host), (rule.operation, rule.permission_type)
    return AclBindingFilter(rule.restype, rule.name, rule.resource_pattern_type, *who, *what)


@contextmanager
def token_endpoint() -> Iterator[str]:
    """Serve tokens for ``liveness`` to who knows the secret, as an identity provider does; yield the address."""

    def reply(_path: str, headers: Message, _body: bytes) -> Reply:
        good = headers["Authorization"] == f"Basic {b64encode(f'liveness:{SECRET}'.encode()).decode()}"
        body = json.dumps({"access_token": unsigned_token()} if good else {"error": "invalid_client"}).encode()
        return 200 if good else 401, {"Content-Type": "application/json"}, body

    with replying(reply) as address:
        yield f"{address}/token"


def unsigned_token() -> str:
    """A token without a signature that is good for ten minutes."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": "liveness", "iat": now, "exp": now + 600})
    return ".".join([*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


class Watched(Watch):
    """A cluster polled by one configuration, as the exporter does it, with what is logged and shown."""

    def __init__(self, properties: Properties, *include: str, iam: AwsIam | None = None) -> None:
        self.monitor = watching()
        further: dict[str, Any] = dict(properties)
        bootstrap = str(further.pop("bootstrap.servers"))
        # A busy machine may be slow; what is refused does not wait for it.
        super().__init__(bootstrap, include or (".*",), timeout=30.0, sinks=[self.monitor], iam=iam, **further)

    def shown(self) -> str:
        """Everything that a page or a scrape shows."""
        return f"{self.monitor.metrics().decode()}\n{self.monitor.status()}"

    def counted(self, metric: str) -> float | None:
        found = re.search(rf"^{re.escape(metric)} (\S+)$", self.monitor.metrics().decode(), re.MULTILINE)
        return None if found is None else float(found[1])
