"""What clients say before and within a login, and what a broker answers, Kafka's or ours."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import rights_matrix as matrix
from patience import eventually
from raw_connection import RawConnection, encoded

from horolog.client import scram
from horolog.security import ScramMechanism, salted
from horolog.wire import ApiKey

HANDSHAKE, AUTHENTICATE, VERSIONS, METADATA = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
)
LISTENER, SHORT = "USERS", "SHORT"
_MECHANISMS = {ScramMechanism.SHA_256: "SHA256", ScramMechanism.SHA_512: "SHA512"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_USER, _PASSWORD = "cram", "pencil"
_GOOD = f"\0{matrix.ADMIN}\0{matrix.PASSWORD(matrix.ADMIN)}".encode()
_OTHER = f"\0{matrix.user(0)}\0{matrix.PASSWORD(matrix.user(0))}".encode()


def settings() -> dict[str, str]:
    """Settings of either broker: two listeners with logins; those of SHORT end."""
    found: dict[str, str] = {}
    for listener in (LISTENER.lower(), SHORT.lower()):
        prefix = f"listener.name.{listener}"
        found |= {
            f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{prefix}.plain.sasl.jaas.config": matrix.jaas(1),
            f"{prefix}.scram-sha-256.sasl.jaas.config": _SCRAM,
            f"{prefix}.scram-sha-512.sasl.jaas.config": _SCRAM,
        }
    return {**found, "listener.name.short.plain.connections.max.reauth.ms": "1500"}


class Dialogue:
    """A connection that notes what it is told until it is closed."""

    def __init__(self, address: str) -> None:
        self._connection = RawConnection(address)
        self.told: list[Any] = []
        self.message = b""
        """What the broker has last said within a login."""

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> None:
        """Send a request, and note the error and its words."""
        self._note(lambda: self._connection.ask(key, version, **fields), key)

    def as_version(self, key: ApiKey, version: int, sent_as: int) -> None:
        """Send a request in the form of another version, and note whether it is answered."""
        fields = {"mechanism": "PLAIN"} if key is HANDSHAKE else {}
        packed = bytearray(self._connection.packed(key, sent_as, encoded(key, sent_as, fields)))
        packed[6:8] = version.to_bytes(2, "big")
        self._bytes(bytes(packed))

    def raw(self, message: bytes) -> None:
        """Send a message without header."""
        self._bytes(len(message).to_bytes(4, "big") + message)

    def is_served(self) -> None:
        """Note whether an ordinary request is answered."""
        self.ask(METADATA, 9, topics=[])

    def close(self) -> None:
        self._connection.socket.close()

    def _note(self, ask: Callable[[], Any], key: ApiKey) -> None:
        if "closed" in self.told:
            return
        try:
            answer = ask()
        except OSError:
            self.told.append("closed")
            return
        self.message = bytes(getattr(answer, "auth_bytes", b"") or b"")
        names = ("error_code", "error_message", "mechanisms", "session_lifetime_ms")
        told = {name: getattr(answer, name) for name in names if hasattr(answer, name)}
        if told.get("mechanisms"):
            told["mechanisms"] = sorted(told["mechanisms"])
        self.told.append((key.title, told))

    def _bytes(self, sent: bytes) -> None:
        if "closed" in self.told:
            return
        connection = self._connection
        try:
            connection.socket.sendall(sent)
            self.message = connection.exactly(int.from_bytes(connection.exactly(4), "big"))
        except OSError:
            self.told.append("closed")
            return
        self.told.append("bytes" if self.message else "no bytes")


Step = Callable[[Dialogue], None]


def _handshake(mechanism: str = "PLAIN", version: int = 1) -> Step:
    return lambda it: it.ask(HANDSHAKE, version, mechanism=mechanism)


def _authenticate(message: bytes, version: int = 2) -> Step:
    return lambda it: it.ask(AUTHENTICATE, version, auth_bytes=message)


def _served(it: Dialogue) -> None:
    it.is_served()


def _versions(it: Dialogue) -> None:
    it.ask(VERSIONS, 3, client_software_name="test", client_software_version="1")


def _pause(it: Dialogue) -> None:
    """Wait until a client may log in again; it is a second."""
    time.sleep(1.1)


def _scram(
    mechanism: ScramMechanism,
    password: str = _PASSWORD,
    change: Callable[[bytes], bytes] = bytes,
    *,
    is_raw: bool = False,
) -> Step:
    """Both messages, the second changed."""

    def said(it: Dialogue) -> None:
        exchange = scram(_MECHANISMS[mechanism], _USER, password, extensions={})
        for message in (next(exchange), b""):
            sent = message
            if not message:
                if not it.message:
                    return
                sent = change(exchange.send(it.message))
            if is_raw:
                it.raw(sent)
            else:
                it.ask(AUTHENTICATE, 2, auth_bytes=sent)

    return said


def _plain() -> Iterator[tuple[str, list[Step]]]:
    name, password = matrix.ADMIN.encode(), matrix.PASSWORD(matrix.ADMIN).encode()
    messages = {
        "good": _GOOD,
        "with its name as authorization id": name + _GOOD,
        "with another authorization id": b"other" + _GOOD,
        "wrong password": b"\0" + name + b"\0wrong",
        "unknown user": b"\0nobody\0" + password,
        "empty": b"",
        "one part": name,
        "two parts": name + b"\0" + password,
        "four parts": _GOOD + b"\0",
        "no name": b"\0\0" + password,
        "no password": b"\0" + name + b"\0",
        "no UTF-8": b"\0\xff\xfe\0\xff",
        "the broker's own": b"\0broker\0secret",
    }
    for title, message in messages.items():
        for version in (0, 1, 2):
            steps = [_handshake(), _authenticate(message, version), _served]
            yield f"PLAIN, {title}, {version}", steps
        yield (
            f"PLAIN raw, {title}",
            [_handshake(version=0), _raw(message), _served],
        )


def _with_another_proof(message: bytes) -> bytes:
    before, mark, proof = message.rpartition(b",p=")
    return before + mark + (b"B" if proof.startswith(b"A") else b"A") + proof[1:]


def _raw(message: bytes) -> Step:
    return lambda it: it.raw(message)


def _scrams() -> Iterator[tuple[str, list[Step]]]:
    name = _USER.encode()
    firsts = {
        "empty": b"",
        "no name": b"n,,",
        "an empty name": b"n,,n=,r=x",
        "no nonce": b"n,,n=" + name,
        "an empty nonce": b"n,,n=" + name + b",r=",
        "that would bind": b"y,,n=" + name + b",r=x",
        "that binds": b"p=tls-unique,,n=" + name + b",r=x",
        "of a token": b"n,,n=" + name + b",r=x,tokenauth=true",
        "for another": b"n,a=other,n=" + name + b",r=x",
        "an odd header": b"n,x=other,n=" + name + b",r=x",
        "an equals sign": b"n,,n=a=b,r=x",
        "no UTF-8": b"n,,n=\xff\xfe,r=x",
        "an extension without a value": b"n,,n=" + name + b",r=x,ext",
        "an extension with a digit": b"n,,n=" + name + b",r=x,ext1=2",
    }
    finals: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda _: b"",
        "no proof": lambda it: it.rpartition(b",p=")[0],
        "another proof": _with_another_proof,
        "a short proof": lambda it: it.rpartition(b",p=")[0] + b",p=AAAA",
        "a proof that is no base64": lambda it: it.rpartition(b",p=")[0] + b",p=!",
        "a shorter nonce": lambda it: it.replace(b"r=", b"r=x", 1)[:-1],
        "another nonce": lambda _: b"c=biws,r=x,p=AAAA",
        "no UTF-8": lambda _: b"\xff\xfe",
        "the first again": lambda _: b"n,,n=cram,r=x",
    }
    for mechanism in ScramMechanism:
        title = mechanism.title
        yield f"{title}, good", [_handshake(title), _scram(mechanism), _served]
        raw = [_handshake(title, 0), _scram(mechanism, is_raw=True), _served]
        yield f"{title} raw, good", raw
        raw = [_handshake(title, 0), _scram(mechanism, "wrong", is_raw=True), _served]
        yield f"{title} raw, wrong password", raw
        yield f"{title}, wrong password", [_handshake(title), _scram(mechanism, "wrong"), _served]
        for what, first in firsts.items():
            yield f"{title}, first {what}", [_handshake(title), _authenticate(first), _served]
        for what, change in finals.items():
            steps = [_handshake(title), _scram(mechanism, change=change), _served]
            yield f"{title}, final {what}", steps


def _orders() -> Iterator[tuple[str, list[Step]]]:
    login = [_handshake(), _authenticate(_GOOD)]
    yield "versions twice", [_versions, _versions, _served]
    yield "versions, then a login", [_versions, *login, _served]
    yield "versions that are not served", [lambda it: it.as_version(VERSIONS, 99, 3), *login]
    yield "a handshake that is not served", [lambda it: it.as_version(HANDSHAKE, 9, 1), _served]
    yield "nothing before", [_served]
    yield "authenticate at once", [_authenticate(_GOOD), _served]
    for version in (0, 1):
        unknown = [_handshake("GSSAPI", version), *login, _served]
        yield f"unknown mechanism, {version}", unknown
        yield f"empty mechanism, {version}", [_handshake("", version), _served]
    yield "mechanism in lower case", [_handshake("plain"), _served]
    yield "metadata within", [_handshake(), _served, _served]
    yield "versions within", [_handshake(), _versions, _served]
    yield "handshake within", [_handshake(), _handshake(), _served]
    yield (
        "produce within",
        [
            _handshake(),
            lambda it: it.ask(ApiKey.PRODUCE, 9, acks=1, topic_data=[]),
            _served,
        ],
    )
    yield "handshake after", [*login, _handshake(), _served]
    yield "authenticate after", [*login, _authenticate(_GOOD), _served]
    yield "versions after", [*login, _versions, _served]
    yield (
        "authenticate that is not served",
        [
            _handshake(),
            lambda it: it.as_version(AUTHENTICATE, 9, 2),
            _served,
        ],
    )
    yield (
        "raw, then a header",
        [
            _handshake(version=0),
            _raw(_GOOD),
            _handshake(),
            _authenticate(_GOOD),
            _served,
        ],
    )
    yield "raw, a header within", [_handshake(version=0), _authenticate(_GOOD), _served]


def _sessions() -> Iterator[tuple[str, list[Step]]]:
    login = [_handshake(), _authenticate(_GOOD)]
    yield "a login that ends, 2", [*login, _served]
    yield "a login that ends, 0", [_handshake(), _authenticate(_GOOD, 0), _served]
    yield "again at once", [*login, _handshake(), _served]
    yield "again later", [*login, _pause, *login, _served, _pause, *login, _served]
    yield "after its end", [*login, _pause, _pause, _served]
    yield "after its end, 0", [_handshake(), _authenticate(_GOOD, 0), _pause, _pause, _served]
    yield "again after its end", [*login, _pause, _pause, *login, _served]
    yield "again as another", [*login, _pause, _handshake(), _authenticate(_OTHER), _served]
    wrong = _authenticate(_GOOD + b"x")
    yield "again with a wrong password", [*login, _pause, _handshake(), wrong, _served]
    yield "again by another mechanism", [*login, _pause, _handshake("SCRAM-SHA-256"), _served]
    yield "again by an unknown mechanism", [*login, _pause, _handshake("GSSAPI"), _served]
    yield "metadata within again", [*login, _pause, _handshake(), _served, _served]
    yield "versions within again", [*login, _pause, _handshake(), _versions, _served]
    yield "authenticate again without handshake", [*login, _pause, _authenticate(_GOOD), _served]
    yield "versions again", [*login, _pause, _versions, _served]
    raw = [_handshake(version=0), _raw(_GOOD), _served]
    yield "raw, a login that ends", [*raw, _pause, _pause, _served]


def dialogues(addresses: dict[str, str], without_login: str) -> dict[str, list[Any]]:
    """Return what a broker says in each dialogue.

    Args:
        without_login: address of a listener that asks for no login.
    """
    _prepare(addresses[LISTENER])
    found = {}
    for listener, given in (
        (LISTENER, [*_plain(), *_scrams(), *_orders()]),
        (SHORT, list(_sessions())),
    ):
        for title, steps in given:
            found[title] = _said(addresses[listener], steps)
    for title, step in (("handshake", _handshake()), ("authenticate", _authenticate(_GOOD))):
        found[f"{title} without logins"] = _said(without_login, [step, _served])
    return found


def _said(address: str, steps: list[Step]) -> list[Any]:
    it = Dialogue(address)
    try:
        for step in steps:
            step(it)
    finally:
        it.close()
    return it.told


def _prepare(address: str) -> None:
    """Make the user of SCRAM."""
    with matrix.login(RawConnection(address), matrix.ADMIN) as admin:
        for mechanism in ScramMechanism:
            change = {
                "name": _USER,
                "mechanism": mechanism,
                "iterations": 4096,
                "salt": b"salt",
                "salted_password": salted(mechanism, _PASSWORD, b"salt", 4096),
            }
            answer = admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[change])
            assert answer.results[0].error_code == 0

        def is_there() -> bool:
            told = admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": _USER}])
            return len(told.results[0].credential_infos) == len(ScramMechanism)

        assert eventually(is_there)
