"""Security that clients and brokers share. Only the files of key stores are read.

claims     what a token must claim
contexts   what TLS is spoken with, from the settings
files      small files, and who else can read them
jaas       login modules and their options (`sasl.jaas.config`)
logins     the broker's side of a login (SASL)
names      names of certificates, and principals made of them
scram      keys that check passwords, and the broker's side of a login by SCRAM
stores     certificates and a private key, from PEM, PKCS#12 and JKS (`jks`)
tokens     keys that check tokens, and the broker's side of a login by OAUTHBEARER
urls       addresses of identity providers and hosts
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.security.claims import *
    from horolog.security.contexts import *
    from horolog.security.files import *
    from horolog.security.jaas import *
    from horolog.security.jks import *
    from horolog.security.logins import *
    from horolog.security.names import *
    from horolog.security.scram import *
    from horolog.security.stores import *
    from horolog.security.tokens import *
    from horolog.security.urls import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "claims": "BadToken TokenOwner TokenRules UnknownKey",
        "contexts": "ServerTls client_tls server_tls",
        "files": "is_readable_by_others read_small",
        "jaas": "LoginModule parse_jaas",
        "jks": "read_jks unprotected",
        "logins": "LoginFailed PlainLogin ServerLogin",
        "names": "MappingRule alternative_names map_name parse_rules subject_name",
        "scram": (
            "LONGEST_MESSAGE Credential ScramLogin ScramMechanism credential_of new_credential "
            "salt_of salted"
        ),
        "stores": "Hidden StoredIdentity check_stores identity_of trusted_of",
        "tokens": "LONGEST_FIRST_MESSAGE SigningKeys TokenLogin",
        "urls": "address_of checked_url is_loopback without_secrets",
    },
    {"tokens": "security"},
)
