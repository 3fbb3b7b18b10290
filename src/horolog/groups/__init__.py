"""Consumer groups: members, generations, assignments and committed offsets.

Pure state machines: requests and time in, results out. `horolog.broker.group_coordinator` has
the sockets, the timers and the store.
"""
