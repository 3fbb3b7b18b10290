"""Short pauses of followers, which do not grow with what a look takes on a busy machine."""

from horolog.broker import follower
from horolog.broker.shadow import shadow

SHORT_PAUSES = (
    (follower, "LOOK_S", 0.1),
    (follower, "LOOK_SHARE", 1),
    (shadow, "GROUPS_S", 0.1),
    (shadow, "GROUPS_SHARE", 1),
)
"""Module, name and value: for `setattr`."""
