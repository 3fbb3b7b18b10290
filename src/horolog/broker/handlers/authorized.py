"""Authorized operations as Kafka's bit fields (KIP-430).

There is no authorizer, so all are set.

Bit n is operation n of Kafka's AclOperation.
"""

from typing import Final

from horolog.wire.acl import AclOperation

NOT_ASKED: Final = -(1 << 31)


def _bits(*names: str) -> int:
    return sum(1 << AclOperation[name] for name in names)


_ON_ALL: Final = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")

ON_TOPIC: Final = _bits(*_ON_ALL, "READ", "WRITE", "CREATE", "DELETE", "ALTER")
ON_GROUP: Final = _bits(*_ON_ALL, "READ", "DELETE")
ON_CLUSTER: Final = _bits(*_ON_ALL, "CREATE", "ALTER", "CLUSTER_ACTION", "IDEMPOTENT_WRITE")
