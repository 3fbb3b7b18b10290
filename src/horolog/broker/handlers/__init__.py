"""Handlers of Kafka's requests; importing them fills the table in `dispatch`.

    topics, configs, cluster         topics, settings, and the cluster itself
    produce, fetch, list_offsets     records and their offsets; `records`: deletion, leader epochs
    groups, group_tools              requests of group members; requests of tools
    commits, offsets                 commits of offsets; reading and deleting committed offsets
    transactions, transaction_tools  requests of producers; requests of tools
    authorized, results              authorized operations as bit fields; parts of responses

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
