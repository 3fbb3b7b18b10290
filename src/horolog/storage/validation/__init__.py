"""Checks of a leader before it appends.

validate       one batch: its facts, or why it is refused
rules          the bounds of timestamps and sizes
message_sets   where a topic stores v0 or v1: messages from what was produced, and their offsets
"""
