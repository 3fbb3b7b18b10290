"""Broker and topic settings under Kafka's own names: type, default, bounds, synonyms.

tables      `topic_settings.txt`, `group_settings.txt`, `broker_settings.txt`: every setting of
            Kafka 4 and its status here; `setting` is a row, `values` and `rules` check its values
settings    `Settings`: given values by source, resolved to effective ones
topic, broker   effective settings as typed values: `TopicConfig`, `BrokerConfig`
describe    settings as DescribeConfigs returns them
alter       changes while the broker runs
properties  the format of `server.properties`; `providers` of values from elsewhere
cluster     membership in a cluster of Apache Kafka's controllers
listeners   the broker's endpoints; `tls` and `logins` of clients; `exposure` refuses open ones
releases    releases of Apache Kafka that settings name
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.config.alter import *
    from horolog.config.broker import *
    from horolog.config.cluster import *
    from horolog.config.describe import *
    from horolog.config.exposure import *
    from horolog.config.listeners import *
    from horolog.config.logins import *
    from horolog.config.properties import *
    from horolog.config.providers import *
    from horolog.config.setting import *
    from horolog.config.settings import *
    from horolog.config.tables import *
    from horolog.config.tls import *
    from horolog.config.tokens import *
    from horolog.config.topic import *
    from horolog.config.values import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "alter": "Operation SettingChange alter_broker alter_group alter_topic check_topic",
        "broker": "BrokerConfig",
        "cluster": "ClusterConfig ControllerAddress",
        "describe": (
            "DescribedSetting Synonym describe_broker describe_client_metrics describe_cluster "
            "describe_group describe_topic"
        ),
        "exposure": "require_closed",
        "listeners": "Endpoint host_port",
        "logins": "Login",
        "properties": "parse_properties",
        "providers": "files_of_secrets with_provided",
        "setting": "Setting Status UpdateMode",
        "settings": "Settings SettingSource",
        "tables": "broker_settings group_settings secrets_among topic_settings",
        "tls": "ListenerTls",
        "tokens": "TokenKeys TokenSettings",
        "topic": "LONG_MAX TopicConfig",
        "values": "SettingKind",
    },
)
