"""Groups of consumers as pure state machines: requests and times in, results out.

The sockets, the timers and the log are in `horolog.broker.coordinators.group_coordinator`.

    group       one group, from state to state; `members`, `deadlines`, `capacity` are parts of it
    offsets     committed offsets of all groups, and their expiry; `pending` of transactions
    rows        rows of groups and offsets, and changes of them
    replay      rows as records of `__consumer_offsets`, and the state that such a log adds up to
    batches     changes as batches of records; `commit_records` for repeated commits
"""
