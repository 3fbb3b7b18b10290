"""Security that clients and brokers share, without I/O.

jaas     login modules and their options (`sasl.jaas.config`)
logins   the broker's side of a login (SASL)
scram    keys that check passwords, and the broker's side of a login by SCRAM
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.security.jaas import *
    from horolog.security.logins import *
    from horolog.security.scram import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "jaas": "LoginModule parse_jaas",
        "logins": "LoginFailed PlainLogin ServerLogin",
        "scram": (
            "LONGEST_MESSAGE Credential ScramLogin ScramMechanism credential_of salt_of salted"
        ),
    },
)
