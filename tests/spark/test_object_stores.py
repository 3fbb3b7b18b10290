"""Logs in object stores: read, streamed, and no secret in any message."""

from pathlib import Path
from typing import Any

import pytest
from log_reading import Read, schema_of
from overrides import override
from partition_files import PartitionFiles
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from storelogs import NOW
from streaming_query import Query, rows
from swapped import EVENTS, states

from horolog.errors import CorruptBatch, HorologError, Misconfigured
from horolog.sources import LogPath, ReadOptions, Root, StoreOptions, shown, system_of
from horolog.storage import REPLACED, Finding, Severity, Verification, VerifyTarget

NINE_MS = 1_700_000_000_000


@pytest.fixture
def orders(tmp_path: Path) -> PartitionFiles:
    files = PartitionFiles(tmp_path / "data")
    for second in range(20):
        files.add([NINE_MS + 1000 * second + each for each in range(10)], value_bytes=200)
        if second % 5 == 4:
            files.roll()
    return files


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_log_in_s3_is_read_as_on_disk(s3: S3Server, orders: PartitionFiles, scheme: str) -> None:
    s3.upload(orders.log_dir, "logs/kafka")
    read = Read(f"{scheme}://logs/kafka", **s3.options())
    assert read.rows() == Read(orders.log_dir).rows()
    late = {"fromTimestamp": NINE_MS + 15_000}
    assert len(Read(f"{scheme}://logs/kafka", **s3.options(), **late).rows()) == 50


def test_a_pattern_of_paths_in_s3_is_read_as_on_disk(s3: S3Server, orders: PartitionFiles) -> None:
    s3.upload(orders.log_dir, "logs/first/kafka")
    s3.upload(orders.log_dir, "logs/other/kafka")
    expected = Read(orders.log_dir).rows()
    assert Read("s3a://logs/f*/kafka/orders-{0,1}", **s3.options()).rows() == expected
    assert Read("s3a://logs/[a-z]*/", **s3.options()).rows() == expected
    with pytest.raises(Misconfigured, match=r"No path matches s3a://logs/none\*"):
        Read("s3a://logs/none*", **s3.options()).rows()


def test_credentials_come_from_the_providers_chain_or_from_options(
    s3: S3Server, orders: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.upload(orders.log_dir, "logs/kafka")
    options = s3.options()
    del options["fs.s3a.access.key"], options["fs.s3a.secret.key"]
    anonymous = {
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
        )
    }
    with pytest.raises(HorologError, match="ACCESS_DENIED"):
        Read("s3a://logs/kafka", **options, **anonymous)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert len(Read("s3a://logs/kafka", **options).rows()) == 200


def test_no_secret_is_in_an_error_or_a_repr(s3: S3Server, orders: PartitionFiles) -> None:
    s3.upload(orders.log_dir, "logs/kafka")
    wrong = {"fs.s3a.access.key": "AKIDWRONG", "fs.s3a.secret.key": "hush-hush"}
    with pytest.raises(HorologError) as refused:
        Read("s3a://logs/kafka", **s3.options(**wrong))
    options = {"path": "s3a://AKIDWRONG:hush-hush@logs/none", **s3.options(**wrong)}
    with pytest.raises(HorologError) as in_uri:
        Read(options.pop("path"), **options)
    parsed = ReadOptions.parse({"path": "s3a://logs/kafka", **s3.options(**wrong)})
    for said in (str(refused.value), str(in_uri.value), repr(refused.value), repr(parsed)):
        assert "hush-hush" not in said
        assert "AKIDWRONG" not in said
    assert refused.value.__cause__ is None
    assert shown("s3://a:b@c/d?region=x&secret_key=y") == (
        "s3://[hidden]@c/d?region=x&secret_key=[hidden]"
    )
    assert shown("abfss://logs@account.dfs.core.windows.net/x") == (
        "abfss://logs@account.dfs.core.windows.net/x"
    )


def test_a_log_in_s3_is_streamed_as_segments_arrive(
    s3: S3Server, orders: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark", IDLE_WAIT_MS=1, DISCOVERY_S=0)
    override(monkeypatch, "horolog.sources", REMOTE_LOOK_S=0)
    segments = orders.logs
    whole = {path: path.read_bytes() for path in segments}
    for path in segments[:2]:
        s3.objects[f"logs/orders-0/{path.name}"] = whole[path]
    query = Query.of({"path": "s3a://logs", "startingOffsets": "earliest", **s3.options()})
    try:
        first = int(segments[0].name.partition(".")[0])
        assert query.next() == rows(0, range(first, first + 100))
        assert query.next() is None
        for path in segments[2:]:
            s3.objects[f"logs/orders-0/{path.name}"] = whole[path]
        assert query.next() == rows(0, range(first + 100, first + 200))
    finally:
        Query.opened.pop().stop()


def test_the_end_of_a_log_in_s3_is_judged_as_on_disk(s3: S3Server, orders: PartitionFiles) -> None:
    position = orders.log.stat().st_size
    first = orders.next_offset
    orders.add([NINE_MS])
    middle = orders.log.stat().st_size
    orders.add([NINE_MS])
    log = orders.log.read_bytes()
    s3.upload(orders.log_dir, "logs/kafka")
    name = f"logs/kafka/orders-0/{orders.log.name}"
    s3.objects[name] = log[:-1]
    assert Read("s3a://logs/kafka", **s3.options()).offsets()[-1] == first
    s3.objects[name] = log[:position] + bytes([0xFF]) * 61 + log[position + 61 :]
    with pytest.raises(CorruptBatch, match=f"{orders.log.name} cannot be read to its end"):
        Read("s3a://logs/kafka", **s3.options()).rows()
    s3.objects[name] = log[: middle - 1] + bytes([log[middle - 1] ^ 1]) + log[middle:]
    with pytest.raises(CorruptBatch, match=f"offset {first}"):
        Read("s3a://logs/kafka", **s3.options()).rows()


def test_a_log_in_s3_whose_segments_are_being_replaced_is_read_as_on_disk(
    s3: S3Server, tmp_path: Path
) -> None:
    schema, number = schema_of(("offset", "appendTimeMs")), 0
    for path, either in states(tmp_path, every=15):
        if not any(path.rglob("*.swap")):
            continue
        number += 1
        directory = path / str(EVENTS)
        if number % 2:
            (directory / REPLACED).unlink(missing_ok=True)  # as a Kafka leaves it
        s3.upload(path, f"logs/{number}")
        options = {"schema": schema, "fromAppendTime": NOW, **s3.options()}
        found = Read(f"s3a://logs/{number}", **options).rows()
        assert [row["offset"] for row in found] in either, path
        assert found == Read(path, schema=schema, fromAppendTime=NOW).rows()
        root = Root(
            LogPath.parse(f"s3a://logs/{number}/{EVENTS}"),
            StoreOptions.parse(s3.options()),
            looks_once=True,
        )
        with root:
            verified = Verification(
                VerifyTarget(Path(root.path).parent, (Path(root.path),)), root.files
            )
            findings = [each for each in verified.steps() if isinstance(each, Finding)]
        assert {each.severity for each in findings} <= {Severity.NOTE}, path
    assert number > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fs.s3a.multipart.size": "5"}, "'fs.s3a.multipart.size' is not supported"),
        ({"fs.gs.project.id": "p"}, "provider's own chain"),
        ({"fs.s3a.access.key": "k"}, "given together"),
        ({"fs.s3a.aws.credentials.provider": "com.Own"}, "only AnonymousAWSCredentialsProvider"),
        ({"fs.s3a.path.style.access": "perhaps"}, "it is true or false"),
    ],
)
def test_options_of_file_systems_that_are_not_obeyed_are_refused(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        StoreOptions.parse(options)


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("gs://anonymous@bucket/logs", "gcs", "bucket/logs"),
        ("abfss://logs@account.dfs.core.windows.net/kafka", "abfs", "logs/kafka"),
    ],
)
def test_other_stores_are_opened_by_their_scheme(uri: str, kind: str, path: str) -> None:
    options: dict[str, Any] = {"fs.azure.account.key.account.dfs.core.windows.net": "a2V5"}
    system, found = system_of(uri, StoreOptions.parse(options))
    assert (system.type_name, found) == (kind, path)


def test_a_scheme_that_pyarrow_does_not_know_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"wasb://\[hidden\]@c/d is in no file system"):
        system_of("wasb://a:b@c/d")
