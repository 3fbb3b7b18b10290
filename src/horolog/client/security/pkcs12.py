"""PKCS#12 stores, read by `cryptography` (the extra `horolog[security]`)."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

__all__ = ["read_pkcs12"]


def read_pkcs12(data: bytes, password: str | None) -> tuple[bytes | None, list[bytes]]:
    """The private key, if there is one, and all certificates, its own first; in DER.

    Raises:
        ValueError: the password is wrong, or the store is damaged.
    """
    store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    der = serialization.Encoding.DER
    key = None
    if store.key is not None:
        key = store.key.private_bytes(
            der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    found = [] if store.cert is None else [store.cert]
    found += store.additional_certs
    return key, [each.certificate.public_bytes(der) for each in found]
