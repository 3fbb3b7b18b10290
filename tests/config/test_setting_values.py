"""Values between text and Python, and the messages of refusals."""

import pytest

from horolog.config import Settings
from horolog.config.rules import rule_of
from horolog.config.tables import broker_settings, topic_settings
from horolog.config.values import SettingKind, Value, parse, to_text
from horolog.errors import Misconfigured


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SettingKind.BOOLEAN, "TRUE", True),
        (SettingKind.BOOLEAN, " false ", False),
        (SettingKind.INT, "+5", 5),
        (SettingKind.INT, "-2147483648", -(1 << 31)),
        (SettingKind.LONG, " 9223372036854775807 ", (1 << 63) - 1),
        (SettingKind.SHORT, "32767", 32767),
        (SettingKind.DOUBLE, "1e-1", 0.1),
        (SettingKind.LIST, "compact, delete", ("compact", "delete")),
        (SettingKind.LIST, "", ()),
        (SettingKind.STRING, " CreateTime ", "CreateTime"),
        (SettingKind.PASSWORD, "x", "x"),
    ],
)
def test_what_kafka_reads_is_read(kind: SettingKind, text: str, value: Value) -> None:
    assert parse(kind, text) == value
    assert parse(kind, to_text(value)) == value


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        (SettingKind.BOOLEAN, "yes", "neither true nor false"),
        (SettingKind.BOOLEAN, "", "neither true nor false"),
        (SettingKind.INT, "", "not a whole number"),
        (SettingKind.INT, "1e9", "not a whole number"),
        (SettingKind.INT, "2_000", "not a whole number"),
        (SettingKind.INT, "٣", "not a whole number"),
        (SettingKind.INT, "1.0", "not a whole number"),
        (SettingKind.INT, "2147483648", "beyond 32 bits"),
        (SettingKind.LONG, "9223372036854775808", "beyond 64 bits"),
        (SettingKind.LONG, "1" * 5000, "not a whole number"),
        (SettingKind.SHORT, "32768", "beyond 16 bits"),
        (SettingKind.DOUBLE, "abc", "not a number"),
        (SettingKind.DOUBLE, "NaN", "not a finite number"),
    ],
)
def test_what_kafka_does_not_read_is_refused(kind: SettingKind, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(kind, text)


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("at least 14", 14, 13),
        ("at least 1, or -1", -1, 0),
        ("1 to 9, or -1", -1, 0),
        ("1 to 9, or -1", 9, 10),
        ("0 to 1", 0.5, 1.5),
        ("-131072 to 22", -131072, 23),
        ("CreateTime or LogAppendTime", "LogAppendTime", "createtime"),
        ("ES256 or RS256, in any case", "es256", "none"),
        ("any of compact, delete", ("delete",), ("delete", "keep")),
        ("any of compact, delete", (), ("",)),
        ("* or partition:broker,partition:broker,...", ("*",), ("*", "1:2")),
        ("* or partition:broker,partition:broker,...", ("1:2", "3:4"), ("x",)),
    ],
)
def test_the_words_of_a_rule_are_the_rule(words: str, good: Value, bad: Value) -> None:
    rule = rule_of(words)
    assert rule is not None
    assert rule.accepts(good)
    assert not rule.accepts(bad)


def test_a_refusal_names_the_setting_the_value_and_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"^Invalid value x for configuration segment\.ms: not a "):
        topic_settings()["segment.ms"].read("x")
    with pytest.raises(
        ValueError, match=r"value 3 .* segment\.bytes: allowed is an int, at least 1"
    ):
        topic_settings()["segment.bytes"].read("3")


def test_a_password_is_never_repeated() -> None:
    with pytest.raises(ValueError, match=r"secret\.key=\[hidden\] is refused") as refusal:
        broker_settings()["delegation.token.secret.key"].read("geheim")
    assert "geheim" not in str(refusal.value)


def test_a_refused_setting_may_keep_its_default() -> None:
    assert topic_settings()["remote.storage.enable"].read("false") is False
    assert broker_settings()["ssl.provider"].read("") == ""
    with pytest.raises(ValueError, match="a class of the JVM"):
        broker_settings()["ssl.provider"].read("BCFIPS")


def test_another_authorizer_than_kafkas_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r"allowed is .*StandardAuthorizer"):
        broker_settings()["authorizer.class.name"].read("org.example.Authorizer")


@pytest.mark.parametrize("text", ["compact", "compact,delete", "delete, compact"])
def test_compaction_is_a_policy(text: str) -> None:
    assert "compact" in topic_settings()["cleanup.policy"].read(text)


def test_lags_of_compaction_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min\.compaction\.lag\.ms \(6\) > max\.compaction"):
        Settings().topic_config({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    equal = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}
    assert Settings().topic_config(equal).max_compaction_lag_ms == 5
    with pytest.raises(Misconfigured, match="conflict"):
        Settings(
            {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"}
        ).broker_config()


@pytest.mark.parametrize(
    ("own", "of_broker", "lag_ms"),
    [
        ({"min.compaction.lag.ms": "6"}, {"log.cleaner.max.compaction.lag.ms": "5"}, 6),
        ({"max.compaction.lag.ms": "5"}, {"log.cleaner.min.compaction.lag.ms": "6"}, 5),
    ],
)
def test_a_lag_of_the_topic_wins_over_one_of_the_broker_and_is_refused_when_it_is_set(
    own: dict[str, str], of_broker: dict[str, str], lag_ms: int
) -> None:
    settings = Settings(of_broker)
    with pytest.raises(ValueError, match="conflict"):
        settings.topic_config(own, asked=True)
    config = settings.topic_config(own)
    assert config.min_compaction_lag_ms == config.max_compaction_lag_ms == lag_ms


@pytest.mark.parametrize("threads", ["1", "2"])
def test_each_thread_that_compacts_has_a_megabyte(threads: str) -> None:
    given = {"log.cleaner.threads": threads, "log.cleaner.dedupe.buffer.size": str(1 << 20)}
    if threads == "1":
        assert Settings(given).broker_config().log_cleaner_threads == 1
    else:
        with pytest.raises(Misconfigured, match="at least 1MB per cleaner thread"):
            Settings(given).broker_config()
