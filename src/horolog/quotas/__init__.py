"""Quotas of clients as Apache Kafka has them: what is set for whom, and how long a client waits.

Decisions only: no I/O, no clock. The metadata log keeps what is set (metadata/image.py), and the
broker records what clients use (broker/throttling.py).

    entities   users, client ids and addresses that quotas are set for; which values are allowed
    windows    sums over the last seconds, and the waits that follow from them
    model      all quotas, and which of them applies to a client
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.quotas.entities import *
    from horolog.quotas.model import *
    from horolog.quotas.windows import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "entities": "CLIENT_ID IP USER Entity QuotaKey "
        "check_entity check_filter check_quota is_match",
        "model": "Limit Quotas",
        "windows": "MOST_MS QuotaWindow TokenBucket WindowedSum",
    },
)
