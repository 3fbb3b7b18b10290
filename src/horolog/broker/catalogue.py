"""The topics of a broker with their partitions and leaders, for the parts of the broker."""

from typing import NamedTuple

from horolog.broker.follow_state import FollowState
from horolog.broker.partitions import Partitions
from horolog.broker.settings import LiveSettings
from horolog.clock import Clock
from horolog.metadata.topics import TopicRegistry


class Catalogue(NamedTuple):
    """Topics and partitions of this broker, with the settings and the clock that they go by."""

    live: LiveSettings
    clock: Clock
    topics: TopicRegistry
    partitions: Partitions
    follow_state: FollowState
