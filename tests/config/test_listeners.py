import pytest

from horolog.config import Endpoint, Settings, host_port
from horolog.config.listeners import parse_endpoint
from horolog.errors import Misconfigured


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", Endpoint("PLAINTEXT", "", 9092)),
        ("plaintext://[::1]:0", Endpoint("PLAINTEXT", "::1", 0)),
        ("INTERNAL_2://kafka-1.example:1", Endpoint("INTERNAL_2", "kafka-1.example", 1)),
        ("PLAINTEXT://[fe80::1%eth0]:9092", Endpoint("PLAINTEXT", "fe80::1%eth0", 9092)),
    ],
)
def test_an_endpoint_is_read_and_written(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text, "listeners") == endpoint
    assert parse_endpoint(str(endpoint), "listeners") == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "9092", "host:9092", "PLAINTEXT://host", "PLAINTEXT://::1:9092", "PLAINTEXT://h:65536",
     "PLAINTEXT://h:-1", "PLAINTEXT://h i:1", "://h:1"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"configuration listeners: allowed is NAME://HOST:PORT"):
        parse_endpoint(text, "listeners")


def test_an_address_is_written_as_people_write_it() -> None:
    assert host_port("127.0.0.1", 1) == "127.0.0.1:1"
    assert host_port("::1", 1) == "[::1]:1"


def test_clients_are_reported_the_listeners_unless_something_else_is_given() -> None:
    config = Settings({"listeners": "PLAINTEXT://10.1.2.3:9092"}).broker_config()
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "10.1.2.3", 9092),)


def test_a_listener_that_is_not_advertised_is_reported_as_it_is() -> None:
    static = {
        "listeners": "IN://10.1.2.3:9092,PLAINTEXT://:9093",
        "listener.security.protocol.map": "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://example.org:9093",
    }
    told = {e.name: e.host for e in Settings(static).broker_config().advertised_listeners}
    assert told == {"IN": "10.1.2.3", "PLAINTEXT": "example.org"}


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_wildcard_alone_is_refused_with_the_line_to_add(host: str) -> None:
    listeners = {"listeners": f"PLAINTEXT://{host}:9092"}
    with pytest.raises(Misconfigured, match=r"advertised\.listeners=PLAINTEXT://HOST:9092"):
        Settings(listeners).broker_config()
    told = listeners | {"advertised.listeners": "PLAINTEXT://example.org:9092"}
    assert Settings(told).broker_config().advertised_listeners[0].host == "example.org"


@pytest.mark.parametrize(
    ("static", "complaint"),
    [
        ({"listeners": "IN://h:1"}, "add it to listener.security.protocol.map as IN:PLAINTEXT"),
        ({"listener.security.protocol.map": "IN:TLS"}, "allowed is NAME:PROTOCOL"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT is given twice"),
        (
            {
                "listeners": "PLAINTEXT://a:1,IN://a:1",
                "listener.security.protocol.map": "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "the port of another listener",
        ),
        ({"advertised.listeners": "OTHER://h:1"}, "there is no listener OTHER; allowed are PLAIN"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to this"),
        (
            {"listeners": "CONTROLLER://h:1", "controller.listener.names": "CONTROLLER"},
            "no listener for clients",
        ),
    ],
)
def test_listeners_that_cannot_be_served_are_refused(
    static: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        Settings(static).broker_config()


def test_one_name_may_serve_both_families_of_addresses() -> None:  # KIP-797
    both = {"listeners": "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092"}
    assert len(Settings(both).broker_config().listeners) == 2
