"""Which options a write takes, and what it says of the others."""

import pytest

from horolog.errors import Misconfigured
from horolog.record import Codec
from horolog.spark.write import producer_settings
from horolog.spark.write.options import OnInvalidTimestamp, WriteOptions
from horolog.spark.write.producer_settings import Producing

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse({**BROKER, **{n.replace("_", "."): v for n, v in options.items()}})


def test_defaults_are_those_of_kafkas_producer_but_for_the_size_of_batches() -> None:
    options = parse()
    assert options.topic is None
    assert options.on_invalid_timestamp is OnInvalidTimestamp.FAIL
    assert options.producing == Producing("127.0.0.1:9092")
    assert options.producing.acks == -1
    assert options.producing.idempotent


def test_producer_settings_are_obeyed() -> None:
    producing = parse(
        KAFKA_acks="1",
        kafka_compression_type="zstd",
        kafka_compression_zstd_level="7",
        kafka_compression_gzip_level="1",
        kafka_batch_size="16384",
        kafka_max_request_size="2097152",
        kafka_delivery_timeout_ms="5000",
        kafka_client_id="mine",
        kafka_linger_ms="100",
        kafka_request_timeout_ms="30",
        kafka_security_protocol="SSL",
    ).producing
    assert (producing.acks, producing.idempotent) == (1, False)
    assert (producing.codec, producing.compression_level) == (Codec.ZSTD, 7)
    assert (producing.batch_bytes, producing.request_bytes) == (16_384, 2_097_152)
    assert (producing.timeout_ms, producing.client_id) == (5_000, "mine")
    assert producing.security.protocol == "SSL"
    assert parse(kafka_batch_size="0").producing.batch_bytes == 1
    assert parse(kafka_max_request_size="500").producing.batch_bytes == 500


def test_exactly_once_is_an_option_that_asks_for_a_name_of_batches() -> None:
    assert not parse().exactly_once
    options = parse(exactlyOnce="true", writeName="import of May")
    assert (options.exactly_once, options.write_name) == (True, "import of May")
    options.refuse_nameless_batch()
    parse().refuse_nameless_batch()
    with pytest.raises(Misconfigured, match="needs option 'writeName'"):
        parse(exactlyOnce="true").refuse_nameless_batch()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"writeName": "n"}, "no effect without option 'exactlyOnce'"),
        ({"writeBatch": "0"}, "no effect without option 'exactlyOnce'"),
        ({"exactlyOnce": "true", "writeBatch": "-1"}, "it is at least 0"),
        ({"exactlyOnce": "true", "writeBatch": "first"}, "it is one whole number"),
        ({"exactlyOnce": "true", "writeName": " "}, "1 to 200 printable"),
        ({"exactlyOnce": "true", "writeName": "n" * 201}, "1 to 200 printable"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"exactlyOnce": "true", "kafka.enable.idempotence": "false"}, "needs kafka.acks=all"),
    ],
)
def test_what_exactly_once_cannot_be_had_with_is_refused(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        WriteOptions.parse({**BROKER, **options})


def test_every_setting_that_only_tunes_the_java_producer_is_accepted() -> None:
    for name in producer_settings.TUNING:
        assert WriteOptions.parse({**BROKER, f"kafka.{name}": "1"}).producing == Producing(
            "127.0.0.1:9092"
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka_key_serializer": "x"}, "'key.serializer' is not supported"),
        ({"kafka_partitioner_class": "x"}, "name partitions in the column 'partition'"),
        ({"kafka_partitioner_ignore_keys": "true"}, "'partitioner.ignore.keys' is not supported"),
        ({"kafka_transactional_id": "x"}, "'transactional.id' is not supported"),
        ({"kafka_interceptor_classes": "x"}, "could change the records"),
        ({"kafka_compresion_type": "gzip"}, "did you mean 'kafka.compression.type'"),
        ({"kafka_group_id": "g"}, "'group.id' is no setting of Kafka's producer"),
        ({"kafka_acks": "2"}, "'kafka.acks' is '2'; it is one of all, -1, 0, 1"),
        ({"kafka_acks": "1", "kafka_enable_idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka_compression_type": "br"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"kafka_compression_gzip_level": "10"}, "from 1 to 9"),
        ({"kafka_batch_size": "-1"}, "from 0 to 2147483647"),
        ({"kafka_batch_size": "9999999999"}, "from 0 to 2147483647"),
        ({"kafka_sasl_mechanism": "GSSAPI", "kafka_security_protocol": "SASL_SSL"}, "GSSAPI"),
        ({"topics": "a"}, "did you mean 'topic'"),
        ({"deadlettertopics": "a"}, "did you mean 'deadLetterTopic'"),
        ({"topic": " "}, "'topic' names no topic"),
        ({"topic": "a b"}, "Option 'topic': .* other than ASCII alphanumerics"),
        ({"bootstrap_servers": "h:1"}, "did you mean 'kafka.bootstrap.servers'"),
        ({"onInvalidTimestamp": "drop"}, "it is one of fail, null, deadLetter"),
        ({"onInvalidTimestamp": "deadLetter"}, "where option 'deadLetterTopic' names a topic"),
        ({"deadLetterTopic": "d"}, "and only there"),
        (
            {"onInvalidTimestamp": "DEADLETTER", "deadLetterTopic": "d", "topic": "d"},
            "are both 'd'",
        ),
        ({"path": "/x"}, "A write goes to a broker"),
        ({"includeHeaders": "perhaps"}, "it is true or false"),
    ],
)
def test_what_no_write_can_have_is_refused_in_a_sentence(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        parse(**options)


def test_a_write_without_a_broker_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"'kafka.bootstrap.servers' must be specified"):
        WriteOptions.parse({"topic": "t"})


def test_options_of_others_are_left_alone() -> None:
    assert parse(checkpointLocation="/c", subscribe="t", queryName="q", spark_option="x") == parse()
