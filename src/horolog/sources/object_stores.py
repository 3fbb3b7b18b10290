"""File systems that are not local, under the names that Spark's users know.

    s3://, s3a://, s3n://   S3 and what speaks its protocol
    gs://, gcs://           Google Cloud Storage
    abfs://, abfss://       Azure Data Lake Storage
    hdfs://                 HDFS, where libhdfs is installed

Credentials come from the provider's chain (environment, configuration files, the machine's role),
or from options under the names of Hadoop's settings. Secrets are in no `repr` and in no error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from horolog.errors import HIDDEN, Misconfigured
from horolog.sources.option_values import flag
from horolog.sources.uris import shown

PREFIXES = ("fs.s3a.", "fs.s3.", "fs.s3n.", "fs.azure.", "fs.gs.", "fs.hdfs.")
_OF_S3 = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
    "fs.s3a.path.style.access",
    "fs.s3a.assumed.role.arn",
    "fs.s3a.aws.credentials.provider",
)
_AZURE_KEY = "fs.azure.account.key"
_SECRETS = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", _AZURE_KEY)
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_CHAIN = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options `fs.*`, by lower-case name. Secrets are not in the `repr`."""

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "StoreOptions":
        """Take the options of file systems from all options; names are lower-case.

        Raises:
            Misconfigured: one that is not supported, or an incomplete or impossible value.
        """
        settings = {name: given[name] for name in given if name.startswith(PREFIXES)}
        for name in settings:
            if name not in _OF_S3 and not _is_azure_key(name):
                raise Misconfigured(
                    f"Option '{name}' is not supported; there are {', '.join(_OF_S3)} and "
                    f"{_AZURE_KEY}. Other credentials come from the provider's own chain"
                )
        if ("fs.s3a.access.key" in settings) != ("fs.s3a.secret.key" in settings):
            raise Misconfigured("fs.s3a.access.key and fs.s3a.secret.key must be given together")
        for name in ("fs.s3a.connection.ssl.enabled", "fs.s3a.path.style.access"):
            flag(settings, name, default=True)
        found = cls(settings)
        _ = found.is_anonymous
        return found

    def scrubbed(self, text: object) -> str:
        """Return a foreign text without secrets, for an error."""
        said = shown(str(text))
        for name, value in self.settings.items():
            if value and name.startswith(_SECRETS):
                said = said.replace(value, HIDDEN)
        return said

    @property
    def names_s3(self) -> bool:
        """True if any setting is one of S3."""
        return any(name in self.settings for name in _OF_S3)

    @property
    def is_anonymous(self) -> bool:
        """True if S3 is asked without credentials.

        Raises:
            Misconfigured: another provider than those that the settings or the chain stand for.
        """
        option = "fs.s3a.aws.credentials.provider"
        provider = self.settings.get(option, "").strip()
        known = provider.rpartition(".")[2]
        if provider and known != _ANONYMOUS and known not in _CHAIN:
            raise Misconfigured(
                f"Option '{option}' is '{provider}'; only {_ANONYMOUS}, {' and '.join(_CHAIN)} are "
                "known. Without the option, keys that are given are used, or else AWS's own chain"
            )
        return known == _ANONYMOUS

    def azure_key(self, host: str) -> str | None:
        """Return the key of an Azure account; None if none is given."""
        return self.settings.get(f"{_AZURE_KEY}.{host.lower()}", self.settings.get(_AZURE_KEY))


NO_OPTIONS = StoreOptions()


def _is_azure_key(name: str) -> bool:
    return name == _AZURE_KEY or name.startswith(f"{_AZURE_KEY}.")
