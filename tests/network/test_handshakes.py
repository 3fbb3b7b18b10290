"""Threads for handshakes outlive what goes wrong in one."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any, cast

import pytest
from certificates import Certificates, client_context

from horolog.network import Handshakes
from horolog.security import MappingRule


class Broken:
    """A context that has a bug."""

    def wrap_bio(self, *_: object, **__: object) -> None:
        raise RuntimeError("a bug")


@pytest.mark.parametrize("has_context", [True, False])
def test_a_bug_in_a_handshake_ends_it_alone(certificates: Certificates, has_context: bool) -> None:
    good = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    good.load_cert_chain(certificates.pem("broker"))
    bad = good if has_context else cast(ssl.SSLContext, Broken())
    rules = cast(Any, "no rules") if has_context else ()
    good.verify_mode = ssl.CERT_REQUIRED
    good.load_verify_locations(certificates.authority)

    async def test() -> None:
        told: asyncio.Queue[Sequence[object]] = asyncio.Queue()
        handshakes = Handshakes(
            asyncio.get_running_loop(),
            lambda *done: told.put_nowait(done),
            lambda *failed: told.put_nowait(failed),
            threads=1,
        )
        context = client_context(certificates, "client")
        for using, its_rules in ((bad, rules), (good, (MappingRule(),))):
            with socket.create_server(("127.0.0.1", 0)) as listening:
                theirs = socket.create_connection(listening.getsockname())
                ours, _ = listening.accept()
            ours.setblocking(False)
            handshakes.begin(ours, "X", using, its_rules)
            wrapping = asyncio.create_task(asyncio.to_thread(context.wrap_socket, theirs))
            said = await asyncio.wait_for(told.get(), 60)
            if its_rules is rules:
                assert "SSL handshake failed" in str(said[1])
            else:
                assert said[2] == "User:CN=client"
                cast(Any, said[1]).sock.close()
            for result in await asyncio.gather(wrapping, return_exceptions=True):
                if isinstance(result, socket.socket):
                    result.close()
            theirs.close()
        await handshakes.close()

    asyncio.run(test())
