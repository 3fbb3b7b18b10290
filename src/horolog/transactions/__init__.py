"""Decisions about transactions: a state and a request in, the next state or a refusal out.

The timers, the log and the markers are in `horolog.broker.coordinators.transaction_coordinator`.

    values      one transactional id in one state, to and from the record of it
    decisions   from state to state: fencing, adding partitions, ending (KIP-98, 360, 588, 890)
    replay      the states that a log of such records adds up to
    promotion   the end of a source's transactions at a promotion
"""
