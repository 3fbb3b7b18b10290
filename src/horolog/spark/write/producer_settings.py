"""Settings of Kafka's Java producer, given as `kafka.*` options: obeyed, forbidden, or tuning.

`OBEYED` says what each does here; the option reference in the documents is made from it.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horolog.client import Client, Security
from horolog.client.producer import Producer, RejectedBatch, Repair
from horolog.client.security import PLAINTEXT
from horolog.errors import Misconfigured
from horolog.record.compression import Codec
from horolog.sources import kafka_settings
from horolog.sources.kafka_settings import PREFIX, check_settings, security_of
from horolog.sources.option_values import flag, integer, one_of

OBEYED = {
    "bootstrap.servers": "the brokers, `host:port` with commas",
    "acks": "`all` (default), `1` or `0`; with `0` a record may be lost without an error",
    "enable.idempotence": "`true` (default with `acks=all`): a retry within a task appends nothing "
    "twice",
    "compression.type": "`none` (default), `gzip`, `snappy`, `lz4`, `zstd`",
    "compression.gzip.level": "the level of this codec",
    "compression.lz4.level": "the level of this codec",
    "compression.zstd.level": "the level of this codec",
    "batch.size": "bytes that batches are filled to before compression; 1000000 if not given, as "
    "a task always has rows enough to fill them",
    "max.request.size": "the most bytes of a batch and of a request; a single record that is "
    "larger is sent all the same, and the broker decides",
    "delivery.timeout.ms": "how long a task tries, retries included; 120000",
    "socket.connection.setup.timeout.ms": "how long a task tries to connect; 10000",
    "transaction.timeout.ms": "with `exactlyOnce`: how long a batch may take from the first "
    "row of a task to the commit; 900000, which is the most that brokers allow unless "
    "`transaction.max.timeout.ms` says otherwise",
    "client.id": "the client's name at the broker; `horolog-spark`",
    "partitioner.ignore.keys": "`false` (default); `true` is refused: name partitions in the "
    "column `partition`",
}

FORBIDDEN = {
    "key.serializer": "keys are strings or binary; use DataFrame functions to write them",
    "value.serializer": "values are strings or binary; use DataFrame functions to write them",
    "interceptor.classes": "interceptors could change the records",
    "partitioner.class": "name partitions in the column 'partition'; where it is null they go by "
    "the key, as with Kafka's default partitioner",
    "transactional.id": "option 'exactlyOnce' chooses one for each task",
}

TUNING = (
    *kafka_settings.TUNING,
    "buffer.memory",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "request.timeout.ms",
    "retries",
    "transaction.two.phase.commit.enable",
)

_BATCH_BYTES = 1_000_000
_REQUEST_BYTES = 16 << 20
_ALL = -1
_INT32_MAX = (1 << 31) - 1
_TRANSACTION_TIMEOUT_MS = 900_000
# As Kafka's own clients have them.
_LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}


@dataclass(frozen=True, slots=True)
class Producing:
    """Settings of a task's producer; times in milliseconds, sizes in bytes."""

    bootstrap_servers: str
    client_id: str = "horolog-spark"
    acks: int = _ALL
    idempotent: bool = True
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_bytes: int = _BATCH_BYTES
    request_bytes: int = _REQUEST_BYTES
    timeout_ms: int = 120_000
    connect_timeout_ms: int = 10_000
    transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS
    security: Security = PLAINTEXT

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "Producing":
        """Read the `kafka.*` options; `options` are by lower-case name, others too.

        Raises:
            Misconfigured: an option, its value, or a combination that no producer can have.
        """
        check_settings(options, "producer", FORBIDDEN, (*OBEYED, *TUNING))
        bootstrap = options.get("kafka.bootstrap.servers", "").strip()
        if not bootstrap:
            raise Misconfigured(
                "Option 'kafka.bootstrap.servers' must be specified (host:port of a broker): a "
                "write goes to a broker"
            )
        if flag(options, "kafka.partitioner.ignore.keys", default=False):
            raise Misconfigured(
                "Kafka option 'partitioner.ignore.keys' is not supported: name partitions in the "
                "column 'partition'"
            )
        security = security_of(options)
        security.check_sasl(has_token_callback=False)
        acks = int(one_of(options, "kafka.acks", "all", "all", "-1", "0", "1").replace("all", "-1"))
        idempotent = flag(options, "kafka.enable.idempotence", default=acks == _ALL)
        if idempotent and acks != _ALL:
            raise Misconfigured("kafka.enable.idempotence=true needs kafka.acks=all")
        kinds = [codec.name.lower() for codec in Codec]
        codec = Codec[one_of(options, "kafka.compression.type", "none", *kinds).upper()]

        def number(name: str, default: int, least: int = 1) -> int:
            return integer(options, PREFIX + name, default, least=least, most=_INT32_MAX)

        most = number("max.request.size", _REQUEST_BYTES)
        return cls(
            bootstrap_servers=bootstrap,
            client_id=options.get("kafka.client.id", "horolog-spark"),
            acks=acks,
            idempotent=idempotent,
            codec=codec,
            compression_level=_level(options, codec),
            batch_bytes=max(1, min(number("batch.size", _BATCH_BYTES, least=0), most)),
            request_bytes=min(most, _REQUEST_BYTES),
            timeout_ms=number("delivery.timeout.ms", 120_000),
            connect_timeout_ms=number("socket.connection.setup.timeout.ms", 10_000),
            transaction_timeout_ms=number("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS),
            security=security,
        )

    def client(self) -> Client:
        """Return a client of the target brokers."""
        return Client(
            self.bootstrap_servers,
            client_id=self.client_id,
            timeout_ms=self.timeout_ms,
            connect_timeout_ms=self.connect_timeout_ms,
            security=self.security,
        )

    def producer(self, client: Client, on_rejected: Callable[[RejectedBatch], Repair]) -> Producer:
        """Return the producer of one attempt whose rows are written at least once."""
        return Producer(
            client,
            acks=self.acks,
            idempotent=self.idempotent,
            # Small tasks without keys would all begin with the first partition.
            first_turn=secrets.randbelow(1 << 16),
            on_rejected=on_rejected,
            **self.of_batches,
        )

    @property
    def of_batches(self) -> dict[str, Any]:
        """Arguments of every producer on filling and compressing batches."""
        return {
            "codec": self.codec,
            "compression_level": self.compression_level,
            "batch_bytes": self.batch_bytes,
            "request_bytes": self.request_bytes,
        }


def _level(options: Mapping[str, str], codec: Codec) -> int | None:
    """Return the level of the codec in use; levels of other codecs are only checked."""
    found = None
    for leveled, (least, most) in _LEVELS.items():
        option = f"{PREFIX}compression.{leveled.name.lower()}.level"
        if option not in options or (leveled is Codec.GZIP and options[option].strip() == "-1"):
            continue
        level = integer(options, option, 0, least=least, most=most)
        if leveled is codec:
            found = level
    return found
