"""How many logins by SCRAM-SHA-512 a second, each on a connection of its own, plain and over TLS?

The client keeps the salted password, as the arithmetic of passwords is the client's alone; the
broker's part is three HMACs and four requests. TLS is that of `bench.tls`: RSA-2048, TLS 1.3.
"""

from functools import partial
from pathlib import Path

from bench import harness
from bench.sides import Side
from bench.tls import certificate, settings

from horolog.client import Client
from horolog.security import ScramMechanism

USER, PASSWORD = "alice", "alice's password"
MECHANISM = ScramMechanism.SHA_512
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secured(file: Path) -> dict[str, str]:
    """Settings of a broker of either side."""
    modules = {
        f"listener.name.{protocol.lower()}.scram-sha-512.sasl.jaas.config": f"{MODULE} required;"
        for protocol in PROTOCOLS
    }
    return {**settings(file), "sasl.enabled.mechanisms": MECHANISM.title, **modules}


def logins(protocol: str, count: int, file: Path, side: Side) -> harness.Numbers:
    """Log in as fast as a few clients can."""
    trusting = {"authority": str(file)} if protocol == "SASL_SSL" else {}
    who = {"user": USER, "password": PASSWORD, "bootstrap": side.listeners[protocol]}
    return harness.run_client("logins", side, count=count, **who, **trusting)


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    count = 2_000 if asked.quick else 6_000
    with certificate() as file, harness.both_sides(asked, secured(file), PROTOCOLS) as sides:
        for side in sides:
            with Client(side.bootstrap) as client:
                client.users.put(USER, PASSWORD, MECHANISM)
        for protocol in PROTOCOLS:
            row = harness.Row(
                f"logins by {MECHANISM.title}, {protocol}",
                "logins/s",
                "1.0x",
                ("broker CPU-us/login",),
            )
            harness.compare(partial(logins, protocol, count, file), sides, asked, row)


if __name__ == "__main__":
    main()
