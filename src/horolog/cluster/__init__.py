"""Who leads what, and who reads what: topics, their settings, groups and their offsets.

Decisions here are pure: requests and time come in, answers go out. What touches a
file is `metadata_store`; what touches a socket or a timer lives in `horolog.broker`.
"""
