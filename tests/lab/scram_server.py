"""A broker's side of SCRAM-SHA-256, for a scripted broker."""

import base64
import hashlib
import hmac
from typing import Any


class ScramServer:
    """The broker's side of one SCRAM exchange."""

    def __init__(self, password: bytes = b"pencil") -> None:
        self._salted = hashlib.pbkdf2_hmac("sha256", password, b"salt", 4096)
        self._messages: list[str] = []

    def __call__(self, request: Any) -> dict[str, Any]:
        message = bytes(request.auth_bytes).decode()
        if message.startswith("n,,"):
            nonce = message.rpartition("r=")[2]
            answer = f"r={nonce}broker,s={base64.b64encode(b'salt').decode()},i=4096"
            self._messages = [message.removeprefix("n,,"), answer]
            return {"auth_bytes": answer.encode()}
        bare, _, proof = message.rpartition(",p=")
        signed = ",".join([*self._messages, bare]).encode()
        client_key = hmac.digest(self._salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return {"error_code": 58, "error_message": "wrong password", "auth_bytes": b""}
        server_key = hmac.digest(self._salted, b"Server Key", "sha256")
        verifier = hmac.digest(server_key, signed, "sha256")
        return {"auth_bytes": b"v=" + base64.b64encode(verifier)}
