"""Rights: who may do what, by access control entries as Apache Kafka's StandardAuthorizer has them.

Decisions only: no I/O, no clock. The metadata log keeps the entries (metadata/image.py), and the
broker asks before it answers a request (broker/authorisation.py).

    entries    an entry, and filters of entries
    hosts      hosts of clients as Java writes them, and ranges of addresses
    checks     what a new entry and a filter may say, and entries that mean something else in Kafka
    model      all entries, and what they allow
    words      entries as people write them
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.rights.checks import *
    from horolog.rights.entries import *
    from horolog.rights.hosts import *
    from horolog.rights.model import *
    from horolog.rights.words import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "checks": "LEVEL_OF_RANGES check_entry check_filter new_ranges",
        "entries": "CLUSTER_NAME EVERY_PRINCIPAL AclEntry AclFilter",
        "hosts": "host_text is_in_range is_range range_error",
        "model": "Decision Rights",
        "words": "entry_of resource_of right_of",
    },
)
