"""The suite of a stranger lies beside these tests and is none of them."""

collect_ignore = ["stranger"]
