"""An authority, a broker's certificate and a client's, made for one test run."""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from secrets_kept import password

PASSWORD = password("store")
# The broker's next certificates, and one without an address.
_SUBJECTS = {"broker": "broker", "client": "client", "renewed": "broker", "unnamed": "broker"}


class Certificates(NamedTuple):
    """Files below one directory; stores and encrypted keys open with `PASSWORD`."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "authority.pem"

    @property
    def trusted_p12(self) -> Path:
        return self.directory / "trusted.p12"

    def pem(self, name: str) -> Path:
        """Key and certificate: `broker`, `client`, `renewed`, or `unnamed`, with no address."""
        return self.directory / f"{name}.pem"

    def encrypted_pem(self, name: str) -> Path:
        return self.directory / f"{name}-encrypted.pem"

    def p12(self, name: str) -> Path:
        return self.directory / f"{name}.p12"


def make_certificates(directory: Path) -> Certificates:
    made = Certificates(directory)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("horolog tests", authority_key, None, authority_key)
    made.authority.write_bytes(_pem(authority))
    made.trusted_p12.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(authority, b"authority")], _encryption()
        )
    )
    for name, subject in _SUBJECTS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        is_named = name != "unnamed"
        certificate = _certificate(subject, key, authority, authority_key, is_named=is_named)
        made.pem(name).write_bytes(_key(key) + _pem(certificate))
        made.encrypted_pem(name).write_bytes(_key(key, encrypted=True) + _pem(certificate))
        made.p12(name).write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(), key, certificate, [authority], _encryption()
            )
        )
    return made


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_named: bool = True,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None and is_named:
        addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _encryption() -> serialization.KeySerializationEncryption:
    return serialization.BestAvailableEncryption(PASSWORD.encode())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey, *, encrypted: bool = False) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        _encryption() if encrypted else serialization.NoEncryption(),
    )


def client_context(
    certificates: Certificates, name: str | None = None, *, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """For sockets of a client; `name` is the certificate that it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates.authority)
    if name is not None:
        context.load_cert_chain(certificates.pem(name))
    if newest is not None:
        context.maximum_version = newest
    return context


def joined(pem: str) -> str:
    """As PEM looks after its lines were joined, in an option or a properties file."""
    return " ".join(pem.split("\n"))
