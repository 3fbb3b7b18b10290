"""Coordinators of groups and transactions, with the state that they keep in internal topics.

admission                asks whether a producer may append to partitions in its transaction
open_transactions        open transactions of partitions, and those that hang
carrying_state           writes state that was kept elsewhere into the internal topics
transaction_coordinator  runs the decisions of `transactions`
transaction_completion   writes the markers of transactions that are decided
transaction_states       transactional ids in memory, as `__transaction_state` has them
transaction_markers      ends transactions in the partitions of this broker
group_coordinator        runs the state machines of `groups`
group_transactions       offsets that groups commit in transactions
live_groups              groups in memory, with their queues, timers and waiting requests
offsets_log              groups and offsets as batches of `__consumer_offsets`
shards                   loads the partitions of an internal topic, one after the other
group_lag                measures how far groups are behind
"""
