"""An authority and a certificate of 127.0.0.1, for a broker of tests."""

import datetime
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from horolog.extras import missing_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import Certificate


class BrokerCertificates(NamedTuple):
    """PEM texts. The `repr` has no key."""

    authority: str
    chain: str
    key: str

    def __repr__(self) -> str:
        return "BrokerCertificates()"


def make_certificates() -> BrokerCertificates:
    """Make an authority and a certificate that it signed, valid whatever a test's clock says.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra's
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra(error, "A broker with users") or error from None
    encoding = serialization.Encoding.PEM
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("horolog tests", authority_key, None, authority_key)
    chain = _certificate("localhost", key, authority, authority_key)
    text = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    texts = (authority.public_bytes(encoding), chain.public_bytes(encoding), text)
    return BrokerCertificates(*(pem.decode() for pem in texts))


def _certificate(
    name: str,
    key: "ec.EllipticCurvePrivateKey",
    issuer: "Certificate | None",
    issuer_key: "ec.EllipticCurvePrivateKey",
) -> "Certificate":
    from cryptography import x509  # noqa: PLC0415 - an extra's
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2199, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if issuer is not None:
        names = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("localhost"),
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
