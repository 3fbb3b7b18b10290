"""Java key stores (JKS): the format of `keytool -storetype JKS`, read without Java.

    u4 magic, u4 version, u4 count, then entries, then 20 bytes of SHA-1
    entry:  u4 tag, utf alias, u8 date, and
            tag 1  u4 size, protected key; u4 count of certificates
            tag 2  one certificate
    certificate (version 2):  utf type, u4 size, DER

The digest is over password, a fixed text and all bytes before it; a key is protected by an
exclusive or with a chain of SHA-1 digests. That is Java's format, not a choice of ours.
"""

import hashlib
import re
from typing import Final, TypeAlias

from horolog.errors import Misconfigured

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_LENGTH: Final = rb"(?:[\x00-\x7f]|\x81.|\x82..|\x83...)"
# SEQUENCE { SEQUENCE { 1.3.6.1.4.1.42.2.17.1.1, NULL }, OCTET STRING } in DER; the octets are a
# salt, the cipher text and a digest.
_PROTECTED_KEY: Final = re.compile(
    rb"\x30%b\x30%b\x06\x0a\x2b\x06\x01\x04\x01\x2a\x02\x11\x01\x01(?:\x05\x00)?\x04%b"
    rb"(.{20})(.*)(.{20})" % ((_LENGTH,) * 3),
    re.DOTALL,
)


JavaKeyStore: TypeAlias = tuple[list[bytes], list[tuple[bytes, list[bytes]]]]
"""Trusted certificates, and protected keys each with its certificate chain, in DER."""


def read_jks(data: bytes, what: str, password: str | None) -> JavaKeyStore:
    """Read a store; without a password its digest is not checked.

    Raises:
        Misconfigured: it is damaged or the password is wrong; `what` names the store.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and _sha1(_utf16(password) + b"Mighty Aphrodite" + body) != digest:
        raise Misconfigured(f"{what}: the password is wrong, or the store is damaged")
    try:
        return _entries(_Fields(body), what)
    except EOFError:
        raise Misconfigured(f"{what}: the store is cut short or damaged") from None


class _Fields:
    """Reads big-endian fields in turn; EOFError where they end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise EOFError
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def _entries(fields: _Fields, what: str) -> JavaKeyStore:
    fields.take(len(JKS_MAGIC))
    version = fields.number(4)
    if version not in {1, 2}:
        raise Misconfigured(f"{what}: version {version} of JKS is not known")
    trusted: list[bytes] = []
    keys: list[tuple[bytes, list[bytes]]] = []

    def certificate() -> bytes:
        if version == 2 and (kind := fields.take(fields.number(2))) not in {b"X.509", b"X509"}:
            raise Misconfigured(f"{what}: a certificate of kind {kind[:40]!r} is not supported")
        return fields.take(fields.number(4))

    for _ in range(fields.number(4)):
        tag = fields.number(4)
        fields.take(fields.number(2))  # its alias
        fields.take(8)  # its date
        if tag == 2:
            trusted.append(certificate())
        elif tag == 1:
            key = fields.take(fields.number(4))
            keys.append((key, [certificate() for _ in range(fields.number(4))]))
        else:
            raise Misconfigured(f"{what}: an entry of unknown kind {tag}")
    return trusted, keys


def unprotected(protected: bytes, password: str, what: str) -> bytes:
    """Return the PKCS#8 key in an EncryptedPrivateKeyInfo of Java's key protector.

    Raises:
        Misconfigured: the password is wrong, or the key is protected in another way.
    """
    match = _PROTECTED_KEY.fullmatch(protected)
    if match is None:
        raise Misconfigured(f"{what}: its key is not protected in the way of JKS")
    salt, cipher, check = match.groups()
    secret = _utf16(password)
    stream, digest = bytearray(), salt
    while len(stream) < len(cipher):
        digest = _sha1(secret + digest)
        stream += digest
    plain = bytes(a ^ b for a, b in zip(cipher, stream, strict=False))
    if _sha1(secret + plain) != check:
        raise Misconfigured(
            f"{what}: ssl.key.password (or, without it, the store's password) does not open its key"
        )
    return plain


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
