"""An issuer of tokens for OAUTHBEARER: keys, tokens, and the server that gives both out."""

import base64
import hmac
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule"
ISSUER, AUDIENCE = "https://issuer.example", "horolog"
NOW_S = 1_700_000_000
"""Time of the clock that a test's broker has."""

CURVES: dict[str, ec.EllipticCurve] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}


def private_key(algorithm: str, number: int = 0) -> Any:
    """Return a key for an algorithm; another number is another key, that of EdDSA's 2 an Ed448."""
    return _private_key(algorithm, number)


@cache
def _private_key(algorithm: str, number: int) -> Any:
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    if algorithm == "EdDSA":
        return (ed448.Ed448PrivateKey if number > 1 else ed25519.Ed25519PrivateKey).generate()
    return rsa.generate_private_key(65537, 2048)


def public_jwk(kid: str | None, algorithm: str = "ES256", number: int = 0) -> dict[str, Any]:
    """Return the public half of a key as a member of a JWKS."""
    return _jwk(private_key(algorithm, number).public_key(), kid)


def _jwk(public: Any, kid: str | None) -> dict[str, Any]:
    members: dict[str, Any]
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        members = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    elif isinstance(public, ec.EllipticCurvePublicKey):
        place, size = public.public_numbers(), (public.key_size + 7) // 8
        members = {"kty": "EC", "crv": f"P-{public.key_size}"}
        members |= {"x": _number(place.x, size), "y": _number(place.y, size)}
    else:
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        curve = "Ed448" if isinstance(public, ed448.Ed448PublicKey) else "Ed25519"
        members = {"kty": "OKP", "crv": curve, "x": encoded(public.public_bytes(*raw))}
    return members if kid is None else {**members, "kid": kid}


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def _number(value: int, size: int = 0) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def sign(algorithm: str, key: Any, text: bytes) -> bytes:
    """Return the signature of a token's first two parts (RFC 7518, RFC 8037)."""
    if algorithm == "EdDSA":
        return bytes(key.sign(text))
    digest = getattr(hashes, f"SHA{algorithm[2:]}")()
    if algorithm.startswith("ES"):
        size = (key.key_size + 7) // 8
        halves = decode_dss_signature(key.sign(text, ec.ECDSA(digest)))
        return b"".join(half.to_bytes(size, "big") for half in halves)
    if algorithm.startswith("PS"):
        salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return bytes(key.sign(text, salted, digest))
    return bytes(key.sign(text, padding.PKCS1v15(), digest))


def public_pem(algorithm: str) -> bytes:
    public = private_key(algorithm).public_key()
    kinds = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(public.public_bytes(*kinds))


def hmac_token(header: Any, payload: Any, key: bytes) -> str:
    """Return a token whose signature is an HMAC."""
    text = joined(header, payload).rpartition(".")[0]
    return f"{text}.{encoded(hmac.digest(key, text.encode(), 'sha256'))}"


@cache
def short_rsa() -> Any:
    """Return a key of 1,024 bits, which is too few."""
    return rsa.generate_private_key(65537, 1024)


def short_rsa_jwk(kid: str) -> dict[str, Any]:
    return _jwk(short_rsa().public_key(), kid)


def short_rsa_token(kid: str) -> str:
    return signed({"alg": "RS256", "kid": kid}, claims(), short_rsa())


def jwks(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(now_s: int = NOW_S, **changed: Any) -> dict[str, Any]:
    """Return the claims of a good token of that time, without those that are None."""
    usual = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now_s,
        "exp": now_s + 3600,
        "scope": ["log"],
    }
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def token(
    given: Mapping[str, Any] | None = None,
    kid: str | None = "one",
    algorithm: str = "ES256",
    number: int = 0,
    **header: Any,
) -> str:
    """Return a token with claims, signed by a key."""
    kids = {} if kid is None else {"kid": kid}
    payload = claims() if given is None else given
    return signed({"alg": algorithm, **kids, **header}, payload, private_key(algorithm, number))


def signed(header: Any, payload: Any, key: Any, algorithm: str = "") -> str:
    """Return a token of any parts whose signature is right."""
    text = joined(header, payload).rpartition(".")[0]
    return f"{text}.{encoded(sign(algorithm or header['alg'], key, text.encode()))}"


def joined(header: Any, payload: Any, signature: bytes = b"") -> str:
    """Return a token of parts that are right or wrong."""
    parts = (
        part if isinstance(part, bytes) else json.dumps(part).encode()
        for part in (header, payload, signature)
    )
    return ".".join(map(encoded, parts))


def first_message(value: str, wanted: str = "", more: str = "") -> bytes:
    """Return the first message of a client with a token."""
    name = f"a={wanted}" if wanted else ""
    return f"n,{name},\1auth=Bearer {value}\1{more}\1".encode()


def listener_settings(name: str, url: str, **more: str) -> dict[str, str]:
    """Return a broker's settings of a listener with tokens, for horolog and Apache Kafka."""
    prefix = f"listener.name.{name.lower()}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        **{f"{prefix}.oauthbearer.sasl.oauthbearer.{key}": text for key, text in more.items()},
    }


def broker_settings(url: str, **more: str) -> dict[str, str]:
    """Return the settings of a broker whose clients log in by tokens."""
    return {
        "listeners": "TOKENS://127.0.0.1:0",
        "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT",
        **listener_settings("TOKENS", url, **more),
    }


class Issuer:
    """Answers of an identity provider, which a test may change."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys_url = f"{url}/keys"
        self.token_url = f"{url}/token"
        self.keys = jwks(public_jwk("one"))
        self.status = 200
        self.now_s = NOW_S
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def answer(self, path: str, form: Mapping[str, list[str]], authorization: str) -> bytes:
        self.asked.append(path)
        self.may_answer.wait(60)
        if path == "/keys":
            return self.keys
        basic = base64.b64encode(b"alice:hush").decode()
        assert authorization == f"Basic {basic}"
        assert form["grant_type"] == ["client_credentials"]
        return json.dumps(
            {"access_token": token(claims(self.now_s)), "expires_in": 3600, "token_type": "Bearer"}
        ).encode()


@contextmanager
def running_issuer(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """Serve keys and tokens over HTTP, or HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply(urllib.parse.parse_qs(body))

        def reply(self, form: Mapping[str, list[str]]) -> None:
            try:
                answer = issuer.answer(self.path, form, self.headers.get("Authorization", ""))
                self.send_response(issuer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except ConnectionError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        issuer = Issuer(f"{scheme}://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            issuer.may_answer.set()
            server.shutdown()
            thread.join()


def file_url(path: Path) -> str:
    return f"file://{path}"
