from command_runner import Run


def test_topics_are_created_listed_described_altered_and_deleted(horolog: Run) -> None:
    made = horolog("topics", "create", "t.one", "t.two", "--partitions", 3, "-c", "segment.ms=5000")
    assert (made.code, made.lines) == (0, ["created t.one", "created t.two"])

    listed = horolog("topics", "list", "--json").json
    assert {"topic": "t.one", "partitions": 3} in listed
    assert any(line.startswith("t.one") for line in horolog("topics", "list").lines)

    horolog(
        "topics",
        "alter",
        "t.one",
        "--unset",
        "segment.ms",
        "-c",
        "retention.ms=7",
        "--partitions",
        4,
    )
    described = horolog("topics", "describe", "t.one", "--json").json
    assert described["settings"]["retention.ms"] == "7"
    assert "segment.ms" not in described["settings"]
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3]

    shown = horolog("topics", "describe", "t.one").out
    assert "retention.ms" in shown
    assert "for the topic" in shown
    assert "index.interval.bytes" not in shown
    assert "index.interval.bytes" in horolog("topics", "describe", "t.one", "--all").out

    assert horolog("topics", "delete", "t.one", "t.two").lines == ["deleted t.one", "deleted t.two"]
    assert {"topic": "t.one", "partitions": 4} not in horolog("topics", "list", "--json").json


def test_what_the_broker_refuses_is_reported_in_its_words(horolog: Run) -> None:
    refused = horolog("topics", "create", "t.bad", "-c", "segment.ms=x")
    assert refused.code == 1
    assert refused.err.startswith(
        "horolog: topic t.bad: Invalid value x for configuration segment.ms"
    )
    assert "INVALID_CONFIG" in refused.err
    assert "Traceback" not in refused.err


def test_a_topic_that_exists_can_be_skipped(horolog: Run) -> None:
    horolog("topics", "create", "t.again")
    assert "TOPIC_ALREADY_EXISTS" in horolog("topics", "create", "t.again").err
    again = horolog("topics", "create", "t.again", "--if-not-exists")
    assert (again.code, again.lines) == (0, ["t.again exists"])


def test_misuse_is_distinguished(horolog: Run) -> None:
    assert horolog("topics", "alter", "t.again").code == 2
    assert horolog("topics", "create", "t.x", "-c", "novalue").code == 2
    assert horolog("topics", "create").code == 2
    missing = horolog("topics", "describe", "t.missing")
    assert missing.code == 1
    assert "there is no topic t.missing" in missing.err
