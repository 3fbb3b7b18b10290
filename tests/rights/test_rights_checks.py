"""What may be said by an entry and a filter, and hosts as Java writes them."""

import pytest

from horolog.errors import ErrorCode, RequestRefused
from horolog.rights import AclEntry, AclFilter, check_entry, check_filter, host_text
from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource

GOOD = AclEntry(
    *(AclResource.TOPIC, "t", AclPattern.LITERAL, "User:a", "*"),
    *(AclOperation.READ, AclPermission.ALLOW),
)
BEFORE_RANGES, WITH_RANGES = 31, 32


def refused(entry, level=WITH_RANGES):
    with pytest.raises(RequestRefused) as caught:
        check_entry(entry, level)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"principal": "Robot:r2"},
        {"principal": ":x"},
        {"principal": "User:"},
        {"name": "no topic / can have it"},
        {"operation": AclOperation.CLUSTER_ACTION},
        {"resource_type": AclResource.CLUSTER, "name": "kafka-cluster"},
        {"host": "localhost"},
        {"host": "10.0.0.0/8"},
        {"host": "2001:db8::/32"},
    ],
)
def test_what_kafka_accepts_is_accepted(changes):
    check_entry(GOOD._replace(**changes), WITH_RANGES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resource_type": AclResource.ANY}, "Invalid resourceType"),
        ({"resource_type": 99}, "Invalid resourceType"),
        ({"pattern": AclPattern.MATCH}, "Invalid patternType"),
        ({"operation": AclOperation.ANY}, "Invalid operation"),
        ({"operation": AclOperation.UNKNOWN}, "Invalid operation"),
        ({"permission": AclPermission.ANY}, "Invalid permissionType"),
        ({"name": ""}, "should not be empty"),
        ({"resource_type": AclResource.CLUSTER}, "kafka-cluster"),
        ({"principal": "a"}, "no colon is present"),
        ({"host": ""}, "cannot be null or empty"),
        ({"host": "10.0.0.0/33"}, r"Invalid CIDR notation '10.0.0.0/33': Value [33] not in"),
        ({"host": "10.0.0/8"}, "Could not parse [10.0.0/8]"),
        ({"host": "256.0.0.0/8"}, "Value [256] not in range [0,255]"),
        ({"host": "2001:db8::/129"}, "prefix length must be between 0 and 128"),
        ({"host": "::ffff:10.0.0.0/104"}, "not an IPv6 address"),
        ({"host": "fe80::1%lo/64"}, "Could not parse [fe80::1%lo]"),
        ({"host": "a/b:c"}, "invalid prefix length"),
        ({"host": "host/8"}, "Could not parse [host/8]"),
        ({"host": "10.0.0.0/8/9"}, "Could not parse"),
    ],
)
def test_what_can_never_apply_is_refused(changes, words):
    error, message = refused(GOOD._replace(**changes))
    assert error == ErrorCode.invalid_request
    assert words in message


def test_a_range_of_addresses_needs_a_level_of_metadata():
    error, message = refused(GOOD._replace(host="10.0.0.0/8"), BEFORE_RANGES)
    assert error == ErrorCode.unsupported_version
    assert "4.4-IV1" in message


@pytest.mark.parametrize(
    "changes", [{"resource_type": 0}, {"pattern": 0}, {"operation": 99}, {"permission": 4}]
)
def test_a_filter_of_unknown_numbers_is_refused(changes):
    check_filter(AclFilter())
    with pytest.raises(RequestRefused):
        check_filter(AclFilter()._replace(**changes))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::A", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_a_client_s_address_is_written_as_java_does(address, text):
    assert host_text(address) == text
