"""Consumer groups: members, generations, assignments and committed offsets.

Decisions only: requests and time come in, answers go out. Sockets, timers and the store
are driven by `horolog.broker.group_coordinator`.
"""
