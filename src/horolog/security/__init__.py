"""Security that clients and brokers share. Only the files of key stores are read.

contexts   what TLS is spoken with, from the settings
jaas       login modules and their options (`sasl.jaas.config`)
logins     the broker's side of a login (SASL)
names      names of certificates, and principals made of them
scram      keys that check passwords, and the broker's side of a login by SCRAM
stores     certificates and a private key, from PEM, PKCS#12 and JKS (`jks`)
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.security.contexts import *
    from horolog.security.jaas import *
    from horolog.security.logins import *
    from horolog.security.names import *
    from horolog.security.scram import *
    from horolog.security.stores import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "contexts": "ServerTls load_identity load_trusted server_tls versions",
        "jaas": "LoginModule parse_jaas",
        "logins": "LoginFailed PlainLogin ServerLogin",
        "names": "MappingRule alternative_names map_name parse_rules subject_name",
        "scram": (
            "LONGEST_MESSAGE Credential ScramLogin ScramMechanism credential_of salt_of salted"
        ),
        "stores": "Hidden StoredIdentity check_stores identity_of trusted_of",
    },
)
