"""Transactions: transactional ids, their producers, and what is in an open transaction.

Pure decisions: a state and a request in, the next state or a refusal out.
`horolog.broker.coordinators.transaction_coordinator` has the timers, the log and the markers.

values      one transactional id in one state, to and from the record of it
decisions   from state to state: fencing, adding partitions, ending (KIP-98, 360, 588, 890)
replay      what a log of such records adds up to
"""
