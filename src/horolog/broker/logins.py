"""Logins of clients (SASL): what a connection may send before it has a principal.

`LoginDispatch` stands between the connections and the dispatcher of a broker with a listener that
asks for a login. It costs one comparison a request.

    ApiVersions, once; SaslHandshake; then SaslAuthenticate until the mechanism is satisfied

After SaslHandshake 0 the mechanism's messages come without Kafka's headers. Anything else ends the
connection. So does a failed login, after `connection.failed.authentication.delay.ms`. A refused
token is answered at once, and the client acknowledges that before the login fails.

A login ends after `connections.max.reauth.ms`, and with its token: the next request closes the
connection, unless it is a SaslHandshake that begins a new login of the same user (KIP-368).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

from horolog.broker.audit import AuditLog
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Dispatcher, kept_task, packed, refuse_version
from horolog.buffers import Buffer
from horolog.config import Login
from horolog.config.tokens import OAUTHBEARER
from horolog.errors import ErrorCode, printable
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.security.claims import UnknownKey
from horolog.security.logins import LoginFailed, PlainLogin, ServerLogin
from horolog.security.scram import Credential, ScramLogin, ScramMechanism
from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.codec import TooManyFields, decode_request
from horolog.wire.error_responses import error_response
from horolog.wire.frame import LENGTH_BYTES, RequestHeader, parse_request_header

_MOST_FIELDS: Final = 1_000
_NOT_YET: Final = "SaslAuthenticate is expected after SaslHandshake"
_HANDSHAKE_KEY: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
LOGINS_EVERY_S: Final = 1.0  # a handshake that comes earlier is refused, as by Apache Kafka

OF_LOGINS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Requests of a client without a principal."""

_Answer: TypeAlias = "Reply | asyncio.Future[Reply | None] | None"
_Pack: TypeAlias = Callable[[bytes, int | LoginFailed], Reply | None]
"""Makes a response of a mechanism's message and how long the login lasts, or why it failed."""


class _LoginState:
    """How far the login of a connection is, and how long it lasts."""

    __slots__ = (
        "begun",
        "ends",
        "failure",
        "has_versions",
        "is_raw",
        "login",
        "mechanism",
        "refusal",
    )

    def __init__(self) -> None:
        self.has_versions = False
        """Whether ApiVersions was answered."""
        self.login: ServerLogin | None = None
        """Set by SaslHandshake."""
        self.is_raw = False
        """Whether its messages come without headers."""
        self.mechanism = ""
        self.failure: LoginFailed | None = None
        """Set if the login has failed, and only an acknowledgement is expected."""
        self.refusal = ""
        """Why the next message ends the connection, if it does."""
        self.begun = -LOGINS_EVERY_S
        """Time of the event loop at which the last new login was begun, in seconds."""
        self.ends = 0.0
        """Time at which that login ends."""


class LoginDispatch:
    """Answers clients without a principal, and hands the others on."""

    def __init__(self, dispatcher: Dispatcher, broker: BrokerParts) -> None:
        self._dispatcher = dispatcher
        self._broker = broker
        self._audit = AuditLog(logging.getLogger(__name__))
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Reply | None]] = set()

    def __call__(self, frame: Buffer, peer: Peer) -> _Answer:
        """Answer a request.

        Raises:
            HorologError: as the dispatcher, or it may not be sent before the login is done.
        """
        if peer.principal is not None and peer.login is None:
            return self._dispatcher(frame, peer)
        if not isinstance(peer.login, _LoginState):
            peer.login = _LoginState()
        state = peer.login
        largest = self._broker.config.sasl_server_max_receive_size
        if state.login is not None and len(frame) > largest:
            raise Hangup("a large request was sent within the login")
        if state.refusal:
            return self._refuse(peer, state.refusal, None)
        if state.login is not None and state.is_raw:
            return self._proceed(peer, state, bytes(frame), _framed)
        if state.login is None and peer.principal is not None:
            return self._in_session(frame, peer, state)
        header = parse_request_header(frame)
        if state.login is not None:
            return self._authenticate(header, frame, peer, state)
        if header.api_key is ApiKey.API_VERSIONS and not state.has_versions:
            state.has_versions = header.api_version in range(*_served(ApiKey.API_VERSIONS))
            return self._dispatcher(frame, peer)
        if header.api_key is not ApiKey.SASL_HANDSHAKE:
            raise Hangup(f"{header.title} was sent before the login")
        return self._handshake(header, frame, peer, state)

    def _in_session(self, frame: Buffer, peer: Peer, state: _LoginState) -> _Answer:
        """Answer a request of a client whose login ends at some time."""
        now = self._loop.time()
        if bytes(frame[:2]) == _HANDSHAKE_KEY and now - state.begun >= LOGINS_EVERY_S:
            state.begun = now
            return self._handshake(parse_request_header(frame), frame, peer, state)
        if now >= state.ends:
            self._broker.login_counts.ended[peer.listener.name] += 1
            raise Hangup(f"the login of {peer.principal} has ended")
        return self._dispatcher(frame, peer)

    def slowly(self, frame: Buffer, peer: Peer) -> "asyncio.Future[Reply | None]":
        """Answer a request with many fields; only clients with a principal send such."""
        if peer.principal is None:
            raise Hangup("a large request was sent before the login")
        return self._dispatcher.slowly(frame, peer)

    def _login(self, peer: Peer) -> Login:
        return self._broker.config.logins[peer.listener.name]

    def _handshake(
        self, header: RequestHeader, frame: Buffer, peer: Peer, state: _LoginState
    ) -> _Answer:
        if header.api_version not in range(*_served(ApiKey.SASL_HANDSHAKE)):
            return refuse_version(header)
        login, body = self._login(peer), _body(header, frame)
        mechanism = str(body.mechanism)
        if mechanism not in login.mechanisms:
            error = ErrorCode.unsupported_sasl_mechanism
            reply = packed(header, {"error_code": error, "mechanisms": login.mechanisms})
            return self._refuse(peer, f"there is no mechanism {mechanism:.60}", reply)
        if peer.principal is not None and mechanism != state.mechanism:
            state.refusal = f"{mechanism} after a login by {state.mechanism}"
        state.login, state.mechanism = self._begin(login, mechanism), mechanism
        state.is_raw = header.api_version == 0
        return packed(header, {"error_code": ErrorCode.none, "mechanisms": login.mechanisms})

    def _begin(self, login: Login, mechanism: str) -> ServerLogin:
        if mechanism == OAUTHBEARER:
            assert login.tokens is not None
            return self._broker.token_logins.begin(login.tokens)
        scram = ScramMechanism.titled(mechanism)
        if scram is None:
            return PlainLogin(login.plain_users)
        credentials = self._broker.credentials

        def find(user: str) -> Credential | None:
            return credentials.get((user, scram))

        return ScramLogin(scram, find, self._broker.login_secret())

    def _authenticate(
        self, header: RequestHeader, frame: Buffer, peer: Peer, state: _LoginState
    ) -> _Answer:
        key, version = header.api_key, header.api_version
        if key not in SUPPORTED or version not in range(*_served(key)):
            return refuse_version(header)
        body = _body(header, frame)
        if key is not ApiKey.SASL_AUTHENTICATE:
            error = ErrorCode.illegal_sasl_state
            reply = packed(header, error_response(key, version, body, error, _NOT_YET))
            return self._refuse(peer, f"{header.title} instead of SaslAuthenticate", reply)
        return self._proceed(peer, state, bytes(body.auth_bytes), partial(_packed_step, header))

    def _proceed(self, peer: Peer, state: _LoginState, message: bytes, pack: _Pack) -> _Answer:
        """Answer a message of the mechanism."""
        assert state.login is not None
        if state.failure is not None:  # which was logged
            return self._task(self._end(peer, pack(b"", state.failure)))
        try:
            answer = state.login.answer(message)
            return pack(answer, self._finish(peer, state))
        except UnknownKey:
            return self._task(self._proceed_with_new_keys(peer, state, message, pack))
        except LoginFailed as error:
            if not error.answer:
                return self._refuse(peer, error.why, pack(b"", error))
            self._count_failure(peer, error.why)
            state.failure = error
            return pack(error.answer, 0)

    async def _proceed_with_new_keys(
        self, peer: Peer, state: _LoginState, message: bytes, pack: _Pack
    ) -> Reply | None:
        tokens = self._login(peer).tokens
        if tokens is not None:
            await self._broker.token_logins.renew(tokens)
        answer = self._proceed(peer, state, message, pack)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _finish(self, peer: Peer, state: _LoginState) -> int:
        """Give the client its principal if the mechanism is satisfied, and return for how long.

        Milliseconds; 0 if the login does not end, or is not complete.

        Raises:
            LoginFailed: it was another's connection before.
        """
        assert state.login is not None
        if state.login.name is None:
            return 0
        principal = f"User:{state.login.name}"
        if peer.principal is None:
            peer.authenticate(principal)
        elif peer.principal != principal:
            raise LoginFailed(
                "Cannot change principals during re-authentication from "
                f"{peer.principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}"
            )
        lifetime_ms, ends_ms = self._login(peer).lifetimes_ms[state.mechanism], state.login.ends_ms
        has_end = lifetime_ms > 0 or ends_ms is not None
        if ends_ms is not None:
            rest_ms = max(0, ends_ms - self._broker.clock.now_ms())
            lifetime_ms = min(lifetime_ms or rest_ms, rest_ms)
        self._broker.login_counts.done[peer.listener.name, state.mechanism] += 1
        state.login = None
        state.ends = self._loop.time() + lifetime_ms / 1000
        peer.login = state if has_end else None
        return lifetime_ms

    def _refuse(self, peer: Peer, why: str, reply: Reply | None) -> _Answer:
        self._count_failure(peer, why)
        return self._task(self._end(peer, reply))

    def _count_failure(self, peer: Peer, why: str) -> None:
        mechanism = peer.login.mechanism if isinstance(peer.login, _LoginState) else ""
        self._broker.login_counts.failed[peer.listener.name, mechanism] += 1
        line = f"Failed authentication with /{peer.host} ({why})"
        self._audit.write(logging.INFO, printable(line))

    async def _end(self, peer: Peer, reply: Reply | None) -> Reply | None:
        """Answer after a while, and close the connection after that."""
        await asyncio.sleep(self._broker.config.connection_failed_authentication_delay_ms / 1000)
        peer.refuse()
        return reply

    def _task(self, answering: Coroutine[Any, Any, Reply | None]) -> "asyncio.Task[Reply | None]":
        return kept_task(self._tasks, answering)


def _packed_step(header: RequestHeader, answer: bytes, outcome: int | LoginFailed) -> Reply | None:
    """Make the response of SaslAuthenticate."""
    if isinstance(outcome, LoginFailed):
        code = ErrorCode.sasl_authentication_failed
        told = {"error_code": code, "error_message": str(outcome), "auth_bytes": answer}
        return packed(header, told)
    return packed(
        header,
        {
            "error_code": ErrorCode.none,
            "error_message": "",
            "auth_bytes": answer,
            "session_lifetime_ms": outcome,
        },
    )


def _framed(answer: bytes, outcome: int | LoginFailed) -> Reply | None:
    """Make a message without header; a failed login closes without one."""
    if isinstance(outcome, LoginFailed):
        return None
    return (len(answer).to_bytes(LENGTH_BYTES, "big") + answer,)


def has_raw_login(peer: Peer) -> bool:
    """Return True if the next message of a client has no header (SaslHandshake 0)."""
    state = peer.login
    return isinstance(state, _LoginState) and state.login is not None and state.is_raw


def _served(key: ApiKey) -> tuple[int, int]:
    versions = SUPPORTED[key]
    return versions.min, versions.max + 1


def _body(header: RequestHeader, frame: Buffer) -> Any:
    """Decode a request on the event loop.

    Raises:
        MalformedRequest: it is none.
        Hangup: it takes long, which no request of a login does.
    """
    key, version, position = header.api_key, header.api_version, header.body_position
    try:
        return decode_request(key, version, frame, position, _MOST_FIELDS)
    except TooManyFields:
        raise Hangup(f"{header.title} with many fields was sent within the login") from None
