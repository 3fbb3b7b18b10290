"""Users of a broker for tests: random passwords, rights, and what a client needs to log in."""

import secrets
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from horolog.broker.service import Service
from horolog.rights.entries import AclEntry
from horolog.rights.words import right_of
from horolog.security.scram import ScramMechanism, new_credential
from horolog.testing.certificates import make_certificates

_MECHANISM: Final = ScramMechanism.SHA_512
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class Users:
    """Users with rights, and a broker's certificate. The `repr` has no password."""

    def __init__(self, rights: Mapping[str, str | Iterable[str]]) -> None:
        """Choose passwords and make certificates.

        Args:
            rights: of each user, as `read topic:clicks`; one or several.

        Raises:
            Misconfigured: a right has another form.
            MissingExtra: cryptography is not installed.
        """
        self._entries: list[AclEntry] = []
        for user, its in rights.items():
            texts = [its] if isinstance(its, str) else its
            self._entries += [right_of(user, text) for text in texts]
        self.passwords = {user: secrets.token_urlsafe(16) for user in rights}
        self._certificates = make_certificates()
        self._directory = tempfile.TemporaryDirectory(prefix="horolog-ca-")
        self.ca_file = Path(self._directory.name) / "ca.pem"
        self.ca_file.write_text(self._certificates.authority)

    def __repr__(self) -> str:
        return f"Users({sorted(self.passwords)})"

    def settings(self) -> dict[str, str]:
        """Return settings of a broker that has these users."""
        return {
            "sasl.enabled.mechanisms": _MECHANISM.title,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self._certificates.key,
            "ssl.keystore.certificate.chain": self._certificates.chain,
        }

    async def put(self, service: Service) -> None:
        """Give them to a broker."""
        credentials = {
            (user, _MECHANISM.value): new_credential(_MECHANISM, password)
            for user, password in self.passwords.items()
        }
        await service.broker.controller.change_credentials(credentials, ())
        await service.broker.controller.create_entries(self._entries)

    def librdkafka(self, user: str) -> dict[str, str]:
        """Return librdkafka's settings of a client that logs in."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM.title,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.ca_file),
        }

    def properties(self, user: str) -> dict[str, str]:
        """Return properties of Kafka's Java client, and of horolog's commands."""
        quoted = user.replace("\\", r"\\").replace('"', r"\"")
        login = f'{_MODULE} username="{quoted}" password="{self.passwords[user]}";'
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM.title,
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
        }

    def close(self) -> None:
        """Remove the file of the authority."""
        self._directory.cleanup()
