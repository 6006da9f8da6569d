"""What a token's identifier states of itself."""

from __future__ import annotations

from tests.fuzzing import fuzz, mutations
from tony_core.files.webhdfs.token_file import vint
from tony_core.hadoop.tokens import (
    HDFS_DELEGATION,
    RM_DELEGATION,
    Lifetime,
    Token,
    lifetime_of,
    shortest_lifetime,
)
from tony_core.hadoop.yarn.messages.yarn import YARNDelegationTokenIdentifier

ISSUED, WEEK = 1700000000.0, 7 * 86400.0


def hdfs(issued: float = ISSUED, lasts: float = WEEK) -> Token:
    """A token as a NameNode writes its identifier."""
    names = b"".join(vint(len(name)) + name for name in (b"ann@X", b"yarn", b""))
    dates = b"".join(vint(round(1000 * time)) for time in (issued, issued + lasts))
    return Token(b"\0" + names + dates + vint(3) + vint(7), b"p", HDFS_DELEGATION, "nn:8020")


def rm(issued: float = ISSUED, lasts: float = WEEK) -> Token:
    identifier = YARNDelegationTokenIdentifier(
        owner="ann@X", issue_date=round(1000 * issued), max_date=round(1000 * (issued + lasts))
    )
    return Token(identifier.encode(), b"p", RM_DELEGATION, "rm:8032")


def test_the_dates_of_delegation_tokens() -> None:
    for token in (hdfs(), rm()):
        assert lifetime_of(token) == Lifetime(ISSUED, ISSUED + WEEK)


def test_tokens_that_state_none() -> None:
    assert lifetime_of(Token(b"\0\0\0\0", b"p", "HIVE_DELEGATION_TOKEN", "hive")) is None
    assert lifetime_of(Token(b"\0\0\0\0", b"p", HDFS_DELEGATION, "nn")) is None
    assert lifetime_of(Token(b"", b"p", RM_DELEGATION, "rm")) is None


def test_the_first_to_end_of_several() -> None:
    later = hdfs(lasts=2 * WEEK)
    assert shortest_lifetime([later, rm()]) == Lifetime(ISSUED, ISSUED + WEEK)
    assert shortest_lifetime([later]) == Lifetime(ISSUED, ISSUED + 2 * WEEK)
    assert shortest_lifetime([Token(b"x", b"p", "HIVE_DELEGATION_TOKEN", "hive")]) is None
    assert shortest_lifetime([]) is None


@fuzz(data=mutations(hdfs().identifier))
def test_any_identifier(data: bytes) -> None:
    found = lifetime_of(hdfs()._replace(identifier=data))
    assert found is None or 0 < found.issued_s < found.ends_s
