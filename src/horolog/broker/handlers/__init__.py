"""Handlers of Kafka's requests; importing them fills the table in `dispatch`.

    topics, configs, cluster         what the broker has
    produce, fetch, list_offsets     records, and where they are; `records`: the rest
    groups, group_tools              members of groups; what tools ask
    commits, offsets                 offsets that groups commit; that they have committed
    transactions, transaction_tools  requests of producers; what tools ask
    authorized                       authorized operations, as Kafka's bit fields

The versions of an API stand above its handler.
"""

from horolog.broker.handlers import (
    cluster,
    commits,
    configs,
    fetch,
    group_tools,
    groups,
    list_offsets,
    offsets,
    produce,
    records,
    topics,
    transaction_tools,
    transactions,
)

__all__ = [
    "cluster",
    "commits",
    "configs",
    "fetch",
    "group_tools",
    "groups",
    "list_offsets",
    "offsets",
    "produce",
    "records",
    "topics",
    "transaction_tools",
    "transactions",
]
