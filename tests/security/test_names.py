"""Names of certificates as Java writes them, and principals that rules make of them."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.errors import Misconfigured
from horolog.security import map_name, parse_rules, subject_name

KEY = ec.generate_private_key(ec.SECP256R1())
OIDS = {
    "C": NameOID.COUNTRY_NAME,
    "CN": NameOID.COMMON_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "E": NameOID.EMAIL_ADDRESS,
    "L": NameOID.LOCALITY_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "STREET": NameOID.STREET_ADDRESS,
    "UID": NameOID.USER_ID,
    "serialNumber": NameOID.SERIAL_NUMBER,
    "title": NameOID.TITLE,
}


def certificate(*parts: list[tuple[str, str]]) -> bytes:
    """A certificate with a subject, from general to special."""
    subject = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(OIDS[k], text) for k, text in part])
            for part in parts
        ]
    )
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (
            [[("O", 'Sons, "Co" + <x>; y=z\\w')], [("CN", "#lead")]],
            'CN=\\#lead,O=Sons\\, \\"Co\\" \\+ \\<x\\>\\; y\\=z\\\\w',
        ),
        (
            [[("C", "DE")], [("OU", "b"), ("CN", "a")], [("L", " two  spaces ")]],
            "L=\\ two  spaces\\ ,CN=a+OU=b,C=DE",
        ),
        (
            [[("O", "Big")], [("CN", "mail")], [("E", "m@x.org")]],
            "1.2.840.113549.1.9.1=#16076d40782e6f7267,CN=mail,O=Big",
        ),
        (
            [
                [("ST", "Hesse")],
                [("STREET", "Road 1")],
                [("serialNumber", "42")],
                [("title", "Dr")],
                [("CN", "Zoë")],
            ],
            "CN=Zoë,2.5.4.12=#0c024472,2.5.4.5=#13023432,STREET=Road 1,ST=Hesse",
        ),
        ([[("CN", " a b ")]], "CN=\\ a b\\ "),
        ([[("CN", "a#b")]], "CN=a\\#b"),
        ([[("CN", "a=b")]], "CN=a\\=b"),
        ([[("CN", "a\tb")]], "CN=a\tb"),
        ([[("OU", " ")]], "OU=\\ "),
        ([[("DC", "org")], [("DC", "ex")]], "DC=ex,DC=org"),
        ([[("CN", "日本")]], "CN=日本"),
        ([[("UID", "u")]], "UID=u"),
        ([], ""),
    ],
)
def test_names_are_written_as_java_writes_them(
    parts: list[list[tuple[str, str]]], name: str
) -> None:
    assert subject_name(certificate(*parts)) == name


WHOLE = certificate([("CN", "a")])


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)))
def test_damaged_certificates_raise_one_error(noise: bytes, at: int) -> None:
    for damaged in (noise, WHOLE[:at], WHOLE[:at] + noise, WHOLE[:at] + noise + WHOLE[at:]):
        try:
            subject_name(damaged)
        except ValueError:
            continue


DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "made"),
    [
        ("", DUKE, None),
        (", ,", DUKE, None),
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DUKE, "DUKE"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/", DUKE, None),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/, DEFAULT", DUKE, DUKE),
        ("RULE:^cn=(.*?),.*$/$1/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1@x/L", DUKE, "duke@x"),
        (
            r"RULE:^CN=(\w+),OU=Users,O=([^,]*),.*$/$2-$1@users-$4/U",
            "CN=duke,OU=Users,O=sun,C=US",
            "SUN-DUKE@USERS-$4",
        ),
        ("RULE:CN=(.*),.*,O=.*,C=.*/$12/", DUKE, "Duke2"),
        (r"RULE:CN=(?<who>\w+),.*/${who}/", DUKE, "Duke"),
        (r"RULE:CN=a\/b/x\/y\$1/", "CN=a/b", "x/y$1"),
        ("RULE:CN=Duk/x/,DEFAULT", DUKE, DUKE),  # the whole name has to fit
        ("RULE:.*/x/", DUKE, "xx"),  # Java replaces what is left behind it, nothing, too
        ("RULE:CN=(a)|CN=(b)/$2$1/", "CN=b", "b"),
        ("RULE:CN=(.*)/$1/U", "CN=straße", "STRASSE"),
        ("RULE:CN=(.*)/$1/L", "CN=İSTΣ", "i̇stς"),
        (r"RULE:CN=(\w+)/$1/", "CN=Zoë", None),
        *(("RULE:CN=(.*)/$1/", f"CN=a{end}b", None) for end in "\n\r\x85\u2028\u2029"),
        ("RULE:CN=(.*)/$1/", "CN=a\tb\x0bc", "a\tb\x0bc"),
        (r"RULE:CN=([.]|\.)b/$1/", "CN=.b", "."),
        (r"RULE:CN=([\[\].]*)/$1/", "CN=[.]", "[.]"),
    ],
)
def test_the_first_rule_that_fits_makes_the_principal(
    rules: str, name: str, made: str | None
) -> None:
    assert map_name(parse_rules(rules), name) == made


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULTS",
        "RULE:",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:a/b/L RULE:c/d/",
        "RULE:(a/b/",
        "RULE:[a&&b]/c/",
        r"RULE:\p{Alpha}/c/",
        "RULE:a/$1/",
        "RULE:(a)/b$/",
        "RULE:(a)/$b/",
        "RULE:(a)/${who}/",
        "RULE:[a[b]]/c/",  # one of either for Java
        "RULE:[[:alpha:]]/c/",
        r"RULE:\v/c/",
        r"RULE:\0101/c/",
        "RULE:(?s)a.b/c/",
        "RULE:(?u)a/c/",
        "RULE:a{99999999999}/c/",
        "DEFAUL",
        "default",
        "DEFAULT/U",
        "rule:a/b/",
        "RULE:a(.*)/$1",
        "RULE:a(.*)/L",
        "RULE:a(.*)/LU",
        "RULE:a/b/L/U",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(Misconfigured, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)


def test_characters_that_python_may_read_otherwise_one_day_are_those_of_java() -> None:
    rules = parse_rules("RULE:CN=([+--a||~~]+)/$1/")
    assert map_name(rules, "CN=a|,-~") == "a|,-~"
    assert map_name(rules, "CN=c") is None


@example("[[")
@given(st.text(alphabet=r"RULE:DEFAULT/\\,$ ()[]{}^?*+.<>abs|&0é", max_size=40))
def test_no_rules_do_more_than_be_refused(text: str) -> None:
    for rules in (text, f"RULE:{text}/{text}/"):
        try:
            parsed = parse_rules(rules)
        except Misconfigured:
            continue
        map_name(parsed, "CN=a")


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",  # of Kafka's pages
        "RULE:^CN=(([a-z0-9,OULSTA=]+\\.?)+)!$/$1/",
        "RULE:^(CN|.)*(a|a)*(.*.*.*)*!$/$1/",
        "RULE:^.*,OU=.*,O=.*,OU=.*,L=.*,ST=.*!$/x/U",
    ],
)
def test_no_name_of_a_client_takes_long_to_be_mapped(rules: str) -> None:
    """A match that does not end stops all threads: Python's engine never lets go of them."""
    name = ("CN=x" + ",OU=a,O=a,L=a,ST=a" * 2_000)[:30_000]
    assert map_name(parse_rules(rules), name) is None
    assert map_name(parse_rules(f"{rules},DEFAULT"), name) == name


def test_a_long_name_is_refused_where_only_pythons_engine_has_the_pattern() -> None:
    rules = parse_rules(r"RULE:^CN=(?=a)(\w+)(,.*)?$/$1/")
    assert map_name(rules, "CN=alice,O=x") == "alice"
    assert map_name(rules, "CN=bob,O=x") is None
    with pytest.raises(ValueError, match="512 characters"):
        map_name(rules, f"CN={'a' * 600}")


CHAIN = (
    "RULE:^CN=(.*?),OU=Services.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L , "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("CN=Ada,OU=Services,O=Org,C=UK", "ada"),
        ("CN=Ada,OU=Web,O=Org,L=Town,ST=County,C=UK", "ada@web"),
        ("cn=ada,ou=web,dc=org,dc=uk", "ADA@WEB"),
        ("cN=ada,OU=Web,O=Some Where", "ADA"),
        ("OU=Web,O=Some Where,C=UK", "OU=Web,O=Some Where,C=UK"),
    ],
)
def test_a_chain_of_rules_is_gone_through_in_order(name: str, made: str) -> None:
    assert map_name(parse_rules(CHAIN), name) == made


def test_a_comma_and_a_blank_of_a_name_may_be_in_a_pattern() -> None:
    rules = parse_rules(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert map_name(rules, r"CN=Love\, Ada,OU=Web,DC=uk") == r"Love\, Ada"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("RULE://", [("", "", "")]),
        ("RULE:/~*/", [("", "~*", "")]),
        ("RULE:/~*/L", [("", "~*", "L")]),
        ("  RULE:// ,  DEFAULT  ", [("", "", ""), None]),
        (" RULE:   /     / , DEFAULT", [("   ", "     ", ""), None]),
        (" RULE:  /   /U   ,DEFAULT", [("  ", "   ", "U"), None]),
        ("RULE:([A-Z]*)/$1/U  , RULE:([a-z]+)/$1/,  DEFAULT", [("([A-Z]*)", "$1", "U"),
         ("([a-z]+)", "$1", ""), None]),
        (",  , , ,", []),
        (",,RULE://,,,DEFAULT,,", [("", "", ""), None]),
        ("  ,  , RULE:  / /U  ,,  ,DEFAULT, ,", [("  ", " ", "U"), None]),
        (r"RULE:\/\\\(\)\n\t/\/\/\//", [(r"\/\\\(\)\n\t", r"\/\/\/", "")]),
        (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", [(r"\**\/+", "*", "L"), (r"\/*\**", "**", "")]),
        (
            r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, D,/D/,DEFAULT",
            [
                (",RULE:,", r",RULE:,\/", "U"),
                (",", "RULE:,", ""),
                (",RULE:,", "L,RULE:,", "L"),
                (", D,", "D", ""),
                None,
            ],
        ),
        ("RULE:^a=([^,ADEFLTU,]+)(,b|$)/$1/", [("^a=([^,ADEFLTU,]+)(,b|$)", "$1", "")]),
    ],
)  # fmt: skip
def test_rules_are_split_at_commas_outside_of_them(
    text: str, rules: list[tuple[str, str, str] | None]
) -> None:
    """None stands for DEFAULT."""
    read = parse_rules(text)
    assert [
        rule.pattern and (rule.pattern.pattern, rule.replacement, rule.case) for rule in read
    ] == rules
