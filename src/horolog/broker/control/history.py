"""Questions about the history of a topic or a group, read from the logs that contain it."""

from functools import partial

from horolog.broker.authorisation import TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import answers, as_many_as_fit
from horolog.history import AskGroupHistory, AskTopicHistory, GroupHistory, TopicHistory
from horolog.metadata.group_history import read_group_history
from horolog.metadata.topic_history import read_topic_history
from horolog.network.peer import Peer
from horolog.storage.names import CONSUMER_OFFSETS
from horolog.wire.acl import AclOperation
from horolog.wire.questions import HISTORY_GROUP, HISTORY_TOPIC


@answers(HISTORY_TOPIC)
async def show_topic_history(
    broker: BrokerParts, peer: Peer, name: str, ask: AskTopicHistory
) -> TopicHistory:
    """Return the changes of a topic, or its state at a time.

    Raises:
        RequestRefused: the client may not describe the topic (29).
        StorageFailed: the disk refused.
    """
    if not broker.access.sees(peer, AclOperation.DESCRIBE, TOPIC, ask.topic):
        raise refusal(TOPIC)

    def page() -> TopicHistory:
        found = read_topic_history(broker.log_dir_path, ask, broker.state_dir_path)
        first = found.end - len(found.changes)
        changes, following = as_many_as_fit(iter(enumerate(found.changes, first)), found.logs)
        return found._replace(changes=changes, next=following)

    return await broker.searchers.run(peer, page)


@answers(HISTORY_GROUP)
async def show_group_history(
    broker: BrokerParts, peer: Peer, group: str, ask: AskGroupHistory
) -> GroupHistory:
    """Return the commits of a group, or those in force at a time, one page after another.

    Raises:
        RequestRefused: other brokers coordinate groups.
        StorageFailed: the disk refused.
    """
    broker.groups.check_here()
    recent = broker.recent_histories
    kept = recent.following(group, ask)
    topic = broker.topics.find(CONSUMER_OFFSETS)
    overrides = None if topic is None else topic.overrides
    keeps_ms = broker.settings.topic_config(overrides).min_compaction_lag_ms
    if topic is None:
        keeps_ms = keeps_ms or broker.config.horolog_history_ms

    def read() -> GroupHistory:
        found = kept
        if found is None:
            found = read_group_history(
                broker.log_dir_path, group, ask, state_dir=broker.state_dir_path
            )
        return found._replace(is_off=not keeps_ms)

    found = await broker.searchers.run(peer, read)
    topics = {event.topic for event in found.events if event.topic is not None}
    sees = partial(broker.access.sees, peer, AclOperation.DESCRIBE, TOPIC)
    hidden = {topic for topic in topics if not sees(topic)}

    def page() -> GroupHistory:
        numbered = enumerate(found.events, found.end - len(found.events))
        shown = (it for it in numbered if it[1].topic not in hidden)
        events, following = as_many_as_fit(shown, found.logs)
        return found._replace(events=events, next=following)

    answer = await broker.searchers.run(peer, page)
    if answer.next is None:
        recent.forget(group, ask)
    elif kept is None:
        recent.keep(group, ask, found)
    return answer
