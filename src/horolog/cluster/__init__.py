"""Consumer groups and the offsets they have committed.

Decisions here are pure: requests and time come in, answers go out. What touches a
file is `horolog.metadata.store`; what touches a socket or a timer lives in `horolog.broker`.
"""
