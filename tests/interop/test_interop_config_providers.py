"""Passwords from files, directories and the environment, as Apache Kafka takes them."""

import os
from pathlib import Path

from raw_connection import RawConnection
from running_broker import BrokerProcess
from secrets_kept import password
from tools.peers.kafka import Kafka

from horolog.wire import ApiKey

PROVIDERS = {"file": "File", "dir": "Directory", "env": "EnvVar"}
CLASS = "org.apache.kafka.common.config.provider.{}ConfigProvider"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def is_let_in(address: str, name: str, secret: str) -> bool:
    with RawConnection(address) as connection:
        assert connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        message = f"\0{name}\0{secret}".encode()
        answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        return bool(answer.error_code == 0)


def test_the_same_settings_let_the_same_users_in(tmp_path: Path) -> None:
    (tmp_path / "users.properties").write_text(f"alice={password('alice')}\n")
    (tmp_path / "bob.password").write_text(password("bob"))
    settings = {
        "config.providers": ",".join(PROVIDERS),
        **{f"config.providers.{it}.class": CLASS.format(PROVIDERS[it]) for it in PROVIDERS},
        "config.providers.file.param.allowed.paths": str(tmp_path),
        "config.providers.env.param.allowlist.pattern": "HO.E",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            f'{PLAIN} required user_alice="${{file:{tmp_path}/users.properties:alice}}" '
            f'user_bob="${{dir:{tmp_path}:bob.password}}" user_carol="${{env:HOME}}" '
            'user_dave="${none:x}";'
        ),
    }
    users = {
        "alice": password("alice"),
        "bob": password("bob"),
        "carol": os.environ["HOME"],
        "dave": "${none:x}",
    }

    def let_in(address: str) -> dict[str, list[bool]]:
        tried = {name: (secret, f"{secret}x", "") for name, secret in users.items()}
        return {
            name: [is_let_in(address, name, secret) for secret in secrets]
            for name, secrets in tried.items()
        }

    with Kafka(settings=settings, listeners={"USERS": "SASL_PLAINTEXT"}) as kafka:
        theirs = let_in(kafka.address_of("USERS"))
    ours = {
        "listeners": "USERS://127.0.0.1:0",
        "listener.security.protocol.map": "USERS:SASL_PLAINTEXT",
        **settings,
    }
    with BrokerProcess(tmp_path / "log", ours) as broker:
        assert let_in(broker.address) == theirs
    assert theirs == {name: [True, False, False] for name in users}
