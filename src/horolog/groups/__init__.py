"""Consumer groups: members, generations, assignments and committed offsets.

Pure state machines: requests and time in, results out. The sockets, the timers and the store are in
`horolog.broker.coordinators.group_coordinator`.

group       one group, from state to state; `members`, `deadlines`, `capacity` are parts of it
offsets     committed offsets of all groups, and which of them have expired
rows        what the store keeps of both
replay      both as records of `__consumer_offsets`, and what a log of those adds up to
"""
