"""Requests to another broker on the event loop, beside brokers that answer what they should not."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from certificates import PASSWORD, Certificates, make_certificates
from overrides import override
from patience import PATIENCE_S
from scram_server import ScramServer
from scripted_broker import HangUp, Raw, ScriptedBroker, Silence

from horolog.broker import new_event_loop
from horolog.broker.scheduling.begun import rest_of
from horolog.client import Address, AuthenticationFailed, NoAnswer, ReusedMemory, Security
from horolog.errors import HorologError, Misconfigured, RequestRefused
from horolog.network import OutgoingConnection
from horolog.wire import ApiKey, MalformedResponse, Versions, encode_response, response_prefix

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

PATIENCE_MS = int(1000 * PATIENCE_S)
METADATA: dict[str, Any] = {
    "topics": (),
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
FETCH: dict[str, Any] = {
    "replica_id": 2,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "topics": (),
    "forgotten_topics_data": (),
}
PLAINTEXT = Security()


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop], ids=["asyncio", "installed"])
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Run coroutines on each kind of event loop that a broker may have."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def to(broker: ScriptedBroker, security: Security = PLAINTEXT, **more: Any) -> OutgoingConnection:
    address = Address(broker.host, broker.port)
    return OutgoingConnection(address, security, client_id="broker-2", **more)


async def metadata(connection: OutgoingConnection, **more: Any) -> Any:
    return await connection.ask(
        ApiKey.METADATA, METADATA, **{"timeout_ms": PATIENCE_MS, "version": 12, **more}
    )


def test_requests_share_a_connection_which_closes_with_its_owner(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        first = await metadata(connection)
        assert [it.node_id for it in first.brokers] == [1]
        # More requests than one wait for their responses.
        several = await asyncio.gather(*(metadata(connection) for _ in range(5)))
        assert {it.controller_id for it in several} == {1}
        assert len(broker.asked(ApiKey.API_VERSIONS)) == 1
        await connection.close()
        with pytest.raises(NoAnswer, match="connection closed"):
            await metadata(connection)

    with ScriptedBroker() as broker:
        run(ask())


def test_a_handler_that_is_begun_without_a_task_may_ask(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        for _ in range(2):  # unconnected, and connected
            begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def begin(begun: asyncio.Future[Any] = begun) -> None:
                asking = metadata(connection)
                begun.set_result((asking, asking.send(None)))

            asyncio.get_running_loop().call_soon(begin)
            asking, awaited = await begun
            answer = await rest_of(asking, awaited)
            assert answer.controller_id == 1
        await connection.close()

    with ScriptedBroker() as broker:
        run(ask())


def test_versions_and_features_of_a_connection_are_known(run: Run[None]) -> None:
    def announce(_: Any) -> dict[str, Any]:
        return {
            "api_keys": [{"api_key": 24, "min_version": 0, "max_version": 4}],
            "supported_features": [
                {"name": "horolog.append.time", "min_version": 1, "max_version": 1}
            ],
        }

    async def ask() -> None:
        connection = to(broker)
        abilities = await connection.connected(timeout_ms=PATIENCE_MS)
        assert abilities.features == {"horolog.append.time": 1}
        assert abilities.version(ApiKey.ADD_PARTITIONS_TO_TXN) == 4
        with pytest.raises(RequestRefused, match="does not answer it"):
            await metadata(connection, version=None)
        # A version that is fixed by the cluster is sent whatever is announced.
        assert (await metadata(connection, version=9)).controller_id == 1
        await connection.close()

    with ScriptedBroker({ApiKey.API_VERSIONS: announce}) as broker:
        run(ask())


def test_an_older_broker_is_asked_for_its_versions_again(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        assert (await metadata(connection)).controller_id == 1
        await connection.close()

    with ScriptedBroker(versions={ApiKey.API_VERSIONS: Versions(0, 2)}) as broker:
        run(ask())


def test_a_large_response_is_received_into_the_memory_of_its_caller(run: Run[None]) -> None:
    records = bytes(range(256)) * 12_000  # 3 MB: memory grows twice

    def fetched(request: Any) -> dict[str, Any]:
        size = request.max_bytes
        partition = {"partition_index": 0, "high_watermark": 7, "records": records[:size]}
        return {"responses": [{"topic": "t", "partitions": [partition]}]}

    async def ask() -> None:
        connection = to(broker)
        memory = ReusedMemory(8 << 20)
        for size in (len(records), 10, 70_000, 65_000, 3_000_000, len(records)):
            body = await connection.ask(
                ApiKey.FETCH,
                FETCH | {"max_bytes": size},
                timeout_ms=PATIENCE_MS,
                version=11,
                memory=memory,
            )
            assert bytes(body.responses[0].partitions[0].records) == records[:size]
        several = [metadata(connection) for _ in range(3)]
        assert len(await asyncio.gather(*several)) == 3
        await connection.close()

    with ScriptedBroker({ApiKey.FETCH: fetched}) as broker:
        run(ask())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "announced an answer of"),
        (b"\0\0\0\3\0\0\0", "announced an answer of 3 bytes"),
        (b"\x7f\xff\xff\xff\0\0\0\1", "announced an answer of 2147483647 bytes"),
        (b"\xff\xff\xff\xff\0\0\0\1", "announced an answer of -1 bytes"),
        (b"\0\0\0\5\0\0\x99\x99\0", "answered request 39321 where 2 was asked"),
        (b"\0\0\0\6\0\0\0\2\0\xff", "Metadata v12 response"),
        (b"\0\0\0\4\0\0\0\2", "too short|ends at|tagged"),
    ],
)
def test_garbage_closes_the_connection_and_the_next_request_opens_another(
    raw: bytes, said: str, run: Run[None]
) -> None:
    async def ask() -> None:
        connection = to(broker, max_response_bytes=1 << 20)
        with pytest.raises(MalformedResponse, match=said):
            await metadata(connection)
        broker.answers = {}
        assert (await metadata(connection)).controller_id == 1
        await connection.close()

    with ScriptedBroker({ApiKey.METADATA: Raw(raw)}) as broker:
        run(ask())


def test_a_response_that_was_not_asked_for_is_no_answer_to_the_next_request(
    run: Run[None],
) -> None:
    async def ask() -> None:
        connection = to(broker)
        assert (await metadata(connection)).controller_id == 2
        assert (await metadata(connection)).controller_id == 2  # and not 3
        assert len(broker.asked(ApiKey.API_VERSIONS)) == 2
        await connection.close()

    forged = b""
    for number in (2, 3):  # of the request, and of the one that follows
        body = encode_response(
            ApiKey.METADATA, 12, {"brokers": (), "controller_id": number, "topics": ()}
        )
        forged += response_prefix(ApiKey.METADATA, 12, number, len(body)) + body
    with ScriptedBroker({ApiKey.METADATA: Raw(forged)}) as broker:
        run(ask())


def test_a_silent_broker_costs_its_time_and_the_connection(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        await connection.connected(timeout_ms=PATIENCE_MS)
        late = asyncio.create_task(metadata(connection))
        await asyncio.sleep(0)
        with pytest.raises(NoAnswer, match="did not answer Metadata") as error:
            await metadata(connection, timeout_ms=50)
        assert error.value.sent
        with pytest.raises(NoAnswer):
            await late  # responses come in order: it cannot come either
        await connection.close()

    with ScriptedBroker({ApiKey.METADATA: Silence()}) as broker:
        run(ask())


def test_a_request_has_its_own_time_after_one_that_was_answered(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        assert (await metadata(connection)).controller_id == 1
        assert (await metadata(connection, timeout_ms=PATIENCE_MS // 2)).controller_id == 1
        with pytest.raises(NoAnswer, match="did not answer Fetch"):
            await connection.ask(ApiKey.FETCH, FETCH, timeout_ms=50, version=12)
        await connection.close()

    with ScriptedBroker({ApiKey.FETCH: Silence()}) as broker:
        run(ask())


def test_a_cancelled_request_leaves_the_connection_to_others(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        await connection.connected(timeout_ms=PATIENCE_MS)
        cancelled = asyncio.create_task(metadata(connection))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await metadata(connection)).controller_id == 1
        assert len(broker.asked(ApiKey.API_VERSIONS)) == 1
        await connection.close()

    with ScriptedBroker() as broker:
        run(ask())


def test_a_broker_that_hangs_up_is_connected_to_again(run: Run[None]) -> None:
    async def ask() -> None:
        connection = to(broker)
        await metadata(connection)
        broker.hang_up()
        for _ in range(100):  # until the loop has heard of it
            try:
                await metadata(connection)
            except NoAnswer:
                continue
            if len(broker.asked(ApiKey.API_VERSIONS)) == 2:
                break
        else:
            pytest.fail("it was not connected to again")
        await connection.close()

    with ScriptedBroker() as broker:
        run(ask())


def test_requests_after_a_failed_attempt_fail_at_once_for_a_while(
    run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.network", FIRST_PAUSE_S=PATIENCE_S, LONGEST_PAUSE_S=PATIENCE_S)

    async def ask() -> None:
        connection = to(broker)
        for _ in range(3):
            with pytest.raises(NoAnswer, match="closed") as error:
                await metadata(connection)
            assert not error.value.sent  # the request itself was not
        assert len(broker.asked(ApiKey.API_VERSIONS)) == 1
        await connection.close()

    with ScriptedBroker({ApiKey.API_VERSIONS: HangUp()}) as broker:
        run(ask())


def test_requests_that_wait_for_one_attempt_share_its_outcome(run: Run[None]) -> None:
    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = Address(*listener.getsockname())
        connection = OutgoingConnection(address, PLAINTEXT, client_id="broker-2")
        outcomes = await asyncio.gather(
            *(metadata(connection) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [NoAnswer] * 3
        assert str(address) in str(outcomes[0])
        await connection.close()

    run(ask())


def test_closing_ends_requests_and_an_attempt_to_connect(run: Run[None]) -> None:
    async def ask() -> None:
        for answers in ({ApiKey.API_VERSIONS: Silence()}, {ApiKey.METADATA: Silence()}):
            broker.answers = answers
            connection = to(broker)
            asked = asyncio.create_task(metadata(connection))
            while not broker.asked(next(iter(answers))):
                await asyncio.sleep(0.001)
            broker.seen.clear()
            await connection.close()
            with pytest.raises(NoAnswer, match="connection closed"):
                await asked

    with ScriptedBroker() as broker:
        run(ask())


# --- TLS and SASL -------------------------------------------------------------------------


def tls_broker(certificates: Certificates, **answers: Any) -> ScriptedBroker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.authority)
    return ScriptedBroker(tls=context, **answers)


def secured(certificates: Certificates, protocol: str = "SSL", **more: str) -> Security:
    return Security.of(
        {
            "security.protocol": protocol,
            "ssl.truststore.location": str(certificates.trusted_p12),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": str(certificates.p12("client")),
            "ssl.keystore.password": PASSWORD,
            **more,
        }
    )


def scram(password: str = "pencil") -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="user" password="{password}";',
    }


def scram_answers(**more: Any) -> dict[ApiKey, Any]:
    server = ScramServer()
    return {
        ApiKey.SASL_HANDSHAKE: {"error_code": 0, "mechanisms": ()},
        ApiKey.SASL_AUTHENTICATE: lambda request: {**server(request), **more},
    }


def test_brokers_prove_themselves_with_certificates_and_a_login(
    certificates: Certificates, run: Run[None]
) -> None:
    records = bytes(range(256)) * 4_000
    partition = {"partition_index": 0, "high_watermark": 7, "records": records}
    answers = {
        ApiKey.FETCH: {"responses": [{"topic": "t", "partitions": [partition]}]},
        **scram_answers(),
    }

    async def ask() -> None:
        connection = to(broker, secured(certificates, "SASL_SSL", **scram()))
        body = await connection.ask(ApiKey.FETCH, FETCH, timeout_ms=PATIENCE_MS, version=11)
        assert bytes(body.responses[0].partitions[0].records) == records
        assert [seen.api_key for seen in broker.seen] == [
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.FETCH,
        ]
        await connection.close()

    with tls_broker(certificates, answers=answers) as broker:
        run(ask())


def test_a_login_that_ends_is_made_again_on_a_new_connection(run: Run[None]) -> None:
    security = Security.of({"security.protocol": "SASL_PLAINTEXT", **scram()})

    async def ask() -> None:
        connection = to(broker, security)
        await metadata(connection)
        while len(broker.asked(ApiKey.SASL_HANDSHAKE)) == 1:
            await metadata(connection)
        await connection.close()

    with ScriptedBroker(scram_answers(session_lifetime_ms=200)) as broker:
        run(ask())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "SCRAM"),
        (scram("other"), "wrong password"),
    ],
)
def test_a_refused_login_is_reported(change: dict[str, str], said: str, run: Run[None]) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", **scram(), **change}

    async def ask() -> None:
        connection = to(broker, Security.of(settings))
        with pytest.raises(AuthenticationFailed, match=said):
            await metadata(connection)
        await connection.close()

    with ScriptedBroker(scram_answers()) as broker:
        run(ask())


def test_certificates_that_do_not_fit_are_reported(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory, run: Run[None]
) -> None:
    others = make_certificates(tmp_path_factory.mktemp("others"))
    without = {"security.protocol": "SSL"}
    anyone = Security.of(
        {**without, "ssl.truststore.type": "PEM"}
        | {"ssl.truststore.location": str(certificates.authority)}
    )
    lost = secured(certificates, **{"ssl.keystore.location": "/nowhere/key.p12"})

    async def refusal(security: Security) -> HorologError:
        connection = to(broker, security)
        with pytest.raises(HorologError) as error:
            await metadata(connection)
        await connection.close()
        return error.value

    async def ask() -> None:
        assert "not trusted" in str(await refusal(secured(others)))
        assert isinstance(await refusal(anyone), AuthenticationFailed | NoAnswer)
        assert isinstance(await refusal(lost), Misconfigured)
        assert isinstance(await refusal(PLAINTEXT), MalformedResponse | NoAnswer)

    with tls_broker(certificates) as broker:
        run(ask())
