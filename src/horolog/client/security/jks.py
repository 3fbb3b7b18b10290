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
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from horolog.errors import Misconfigured

__all__ = ["JKS_MAGIC", "JavaKeyStore", "read_jks"]

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_MAX_CERTIFICATES: Final = 10_000
_U2, _U4 = Struct(">H"), Struct(">I")
# The algorithm's object identifier, 1.3.6.1.4.1.42.2.17.1.1, in DER.
_KEY_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")


class JavaKeyStore(NamedTuple):
    """What a store holds, in DER: trusted certificates, and private keys each with its chain."""

    trusted: list[bytes]
    keys: list[tuple[bytes, list[bytes]]]


def read_jks(
    data: bytes, what: str, password: str | None, key_password: str | None
) -> JavaKeyStore:
    """Read a store; without a password its digest is not checked, and its keys are not read.

    Raises:
        Misconfigured: it is damaged or a password is wrong; `what` names the store.
    """
    if password is not None:
        digest = hashlib.sha1(_utf16(password), usedforsecurity=False)
        digest.update(b"Mighty Aphrodite" + data[:-_DIGEST_BYTES])
        if digest.digest() != data[-_DIGEST_BYTES:]:
            raise Misconfigured(f"{what}: the password is wrong, or the store is damaged")
    reader = _StoreReader(data[:-_DIGEST_BYTES], what)
    reader.take(len(JKS_MAGIC))
    version = reader.u4()
    if version not in {1, 2}:
        raise Misconfigured(f"{what}: version {version} of JKS is not known")
    trusted: list[bytes] = []
    keys: list[tuple[bytes, list[bytes]]] = []
    for _ in range(reader.count()):
        tag = reader.u4()
        reader.utf()
        reader.take(8)
        if tag == 2:
            trusted.append(reader.certificate(version))
        elif tag == 1:
            protected = reader.take(reader.u4())
            chain = [reader.certificate(version) for _ in range(reader.count())]
            if key_password is not None:
                keys.append((_recover(protected, key_password, what), chain))
        else:
            raise Misconfigured(f"{what}: an entry of unknown kind {tag}")
    return JavaKeyStore(trusted, keys)


class _StoreReader:
    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._what, self._position = data, what, 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise Misconfigured(f"{self._what}: the store is cut short")
        taken, self._position = self._data[self._position : end], end
        return taken

    def u4(self) -> int:
        return int(_U4.unpack(self.take(4))[0])

    def count(self) -> int:
        count = self.u4()
        if count > _MAX_CERTIFICATES:
            raise Misconfigured(f"{self._what}: {count} entries; the store is damaged")
        return count

    def utf(self) -> bytes:
        return self.take(_U2.unpack(self.take(2))[0])

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.utf()) not in {b"X.509", b"X509"}:
            raise Misconfigured(f"{self._what}: a certificate of kind {kind!r} is not supported")
        return self.take(self.u4())


def _recover(protected: bytes, password: str, what: str) -> bytes:
    """The PKCS#8 key inside an EncryptedPrivateKeyInfo of Java's key protector."""
    body = _only_octets(protected)
    if body is None or len(body) < 2 * _DIGEST_BYTES:
        raise Misconfigured(f"{what}: its key is not protected in the way of JKS")
    secret = _utf16(password)
    salt, cipher, check = (
        body[:_DIGEST_BYTES],
        body[_DIGEST_BYTES:-_DIGEST_BYTES],
        body[-_DIGEST_BYTES:],
    )
    stream = b"".join(_digests(secret, salt, len(cipher)))[: len(cipher)]
    plain = (int.from_bytes(cipher, "big") ^ int.from_bytes(stream, "big")).to_bytes(
        len(cipher), "big"
    )
    if hashlib.sha1(secret + plain, usedforsecurity=False).digest() != check:
        raise Misconfigured(
            f"{what}: ssl.key.password (or, without it, the store's password) does not open its key"
        )
    return plain


def _digests(secret: bytes, salt: bytes, size: int) -> Iterator[bytes]:
    digest = salt
    for _ in range(0, size, _DIGEST_BYTES):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        yield digest


def _only_octets(info: bytes) -> bytes | None:
    """SEQUENCE { SEQUENCE { the protector's oid, NULL }, OCTET STRING }: the octets."""
    content = _der(info, 0x30)
    if content is None:
        return None
    algorithm = _der(content, 0x30)
    if algorithm is None or not algorithm.startswith(_KEY_PROTECTOR):
        return None
    return _der(content[content.index(algorithm) + len(algorithm) :], 0x04)


def _der(data: bytes, tag: int) -> bytes | None:
    """The content of the DER value that `data` begins with."""
    if len(data) < 2 or data[0] != tag:
        return None
    size, start = data[1], 2
    if size >= 0x80:
        start = 2 + (size & 0x7F)
        size = int.from_bytes(data[2:start], "big")
    return data[start : start + size] if start + size <= len(data) else None


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
