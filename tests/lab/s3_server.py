"""A small S3: buckets in memory, read with ranges and listed, for clients that sign with a key."""

import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "AKIDTEST", "s3cr3t-of-tests"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class S3Server:
    """Objects by `bucket/key`; HEAD, GET, ListObjectsV2, PUT, DELETE, uploads in parts."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.bytes_sent = 0
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.puts: list[str] = []
        """The names of all objects that were written, in order."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request, in order."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def upload(self, directory: Path, to: str) -> None:
        """Every file below a directory."""
        for path in directory.rglob("*"):
            if path.is_file():
                self.objects[f"{to}/{path.relative_to(directory)}"] = path.read_bytes()

    def options(self, **more: str) -> dict[str, str]:
        """What a client has to be told."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            "fs.s3a.endpoint.region": "us-east-1",
            **more,
        }


def _handler(server: S3Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body are two writes: the second would wait 40 ms for the client's delayed ACK.
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            self._object(with_body=False)

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if "list-type" in query:
                self._list(query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
            else:
                self._object(with_body=True)

        def do_PUT(self) -> None:
            content = self._sent()
            if not self._may():
                return
            address = urlsplit(self.path)
            name, query = unquote(address.path).strip("/"), parse_qs(address.query)
            if "partNumber" in query:
                server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = content
            elif "/" in name:
                server.objects[name] = content
                server.puts.append(name)
            self._answer(200, b"")

        def do_POST(self) -> None:
            content = self._sent()
            if not self._may():
                return
            address = urlsplit(self.path)
            name, query = unquote(address.path).strip("/"), parse_qs(address.query, True)
            bucket, _, key = name.partition("/")
            about = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            if "uploads" in query:
                upload = str(len(server.uploads))
                server.uploads[upload] = {}
                body = (
                    f"<InitiateMultipartUploadResult>{about}<UploadId>{upload}</UploadId>"
                    "</InitiateMultipartUploadResult>"
                )
            elif "delete" in query:
                for each in re.findall(r"<Key>([^<]*)</Key>", content.decode()):
                    server.objects.pop(f"{bucket}/{each}", None)
                body = "<DeleteResult></DeleteResult>"
            else:
                parts = server.uploads[query["uploadId"][0]]
                server.objects[name] = b"".join(parts[number] for number in sorted(parts))
                server.puts.append(name)
                body = (
                    f"<CompleteMultipartUploadResult>{about}<ETag>&quot;1&quot;</ETag>"
                    "</CompleteMultipartUploadResult>"
                )
            self._answer(200, body.encode(), {"Content-Type": "application/xml"})

        def do_DELETE(self) -> None:
            if self._may():
                server.objects.pop(unquote(urlsplit(self.path).path).strip("/"), None)
                self._answer(204, b"")

        def _sent(self) -> bytes:
            """The body; out of its chunks, if it was signed chunk by chunk."""
            if self.headers.get("Transfer-Encoding", "") == "chunked":
                content = b""
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if "x-amz-decoded-content-length" not in self.headers:
                return content
            found = b""
            while content:
                line, _, content = content.partition(b"\r\n")
                size = int(line.partition(b";")[0] or b"0", 16)
                if not size:
                    break
                found, content = found + content[:size], content[size + 2 :]
            return found

        def _object(self, *, with_body: bool) -> None:
            if not self._may():
                return
            name = unquote(urlsplit(self.path).path).strip("/")
            content = server.objects.get(name)
            if content is None:
                is_bucket = "/" not in name and any(
                    each.startswith(f"{name}/") for each in server.objects
                )
                self._answer(200 if is_bucket else 404, b"")
                return
            size, status, headers = len(content), 200, {}
            asked = _RANGE.fullmatch(self.headers.get("Range", ""))
            if asked:
                first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
                content, status = content[first : last + 1], 206
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self._answer(status, content, headers, with_body=with_body)

        def _list(self, prefix: str, delimiter: str) -> None:
            if not self._may():
                return
            bucket = unquote(urlsplit(self.path).path).strip("/")
            keys = sorted(
                key
                for each in server.objects
                if each.startswith(f"{bucket}/")
                and (key := each.removeprefix(f"{bucket}/")).startswith(prefix)
            )
            found, common = [], []
            for key in keys:
                rest = key[len(prefix) :]
                below, more, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
                if more:
                    common.append(prefix + below + more)
                else:
                    size = len(server.objects[f"{bucket}/{key}"])
                    found.append(
                        f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                        "<LastModified>2026-11-17T09:00:00.000Z</LastModified></Contents>"
                    )
            of_prefixes = "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
                for each in dict.fromkeys(common)
            )
            body = (
                '<?xml version="1.0" encoding="UTF-8"?>'
                f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
                f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
                f"<IsTruncated>false</IsTruncated>{''.join(found)}{of_prefixes}</ListBucketResult>"
            )
            self._answer(200, body.encode(), {"Content-Type": "application/xml"})

        def _may(self) -> bool:
            """Whether the request is signed with the key; the signature itself is not checked."""
            if f"Credential={ACCESS_KEY}/" in self.headers.get("Authorization", ""):
                return True
            self._answer(
                403,
                b"<Error><Code>AccessDenied</Code><Message>no such key: "
                + self.headers.get("Authorization", "").encode()
                + b"</Message></Error>",
            )
            return False

        def _answer(
            self,
            status: int,
            content: bytes,
            headers: Mapping[str, str] = MappingProxyType({}),
            *,
            with_body: bool = True,
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{len(content)}"')
            self.send_header("Last-Modified", "Tue, 17 Nov 2026 09:00:00 GMT")
            self.end_headers()
            if with_body and self.command != "HEAD":
                self.wfile.write(content)
                server.bytes_sent += len(content)

        def log_request(self, *_: Any) -> None:
            server.requests.append((self.command, self.path))

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
