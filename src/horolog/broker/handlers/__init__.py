"""Handlers of Kafka's requests; importing them fills the table in `dispatch`.

    topics, configs, cluster         topics, settings, and the cluster itself; `acls`: its rights
    described_topics                 partitions of topics, page by page
    produce, fetch, list_offsets     records and their offsets; `records`: deletion, leader epochs;
                                     `produce_single`: records of one partition
    groups, group_tools              requests of group members; requests of tools
    consumer_groups                  groups that the broker assigns (KIP-848)
    commits, offsets                 commits of offsets; reading and deleting committed offsets
    transactions, transaction_tools  requests of producers; requests of tools
    quotas                           quotas of clients
    users, logins                    users of SCRAM; logins where there is none
    results                          parts of responses

The versions of an API stand above its handler.
"""

from horolog.broker.handlers import (
    acls,
    cluster,
    commits,
    configs,
    consumer_groups,
    described_topics,
    fetch,
    group_tools,
    groups,
    list_offsets,
    logins,
    offsets,
    produce,
    produce_single,
    quotas,
    records,
    topics,
    transaction_tools,
    transactions,
    users,
)

__all__ = [
    "acls",
    "cluster",
    "commits",
    "configs",
    "consumer_groups",
    "described_topics",
    "fetch",
    "group_tools",
    "groups",
    "list_offsets",
    "logins",
    "offsets",
    "produce",
    "produce_single",
    "quotas",
    "records",
    "topics",
    "transaction_tools",
    "transactions",
    "users",
]
