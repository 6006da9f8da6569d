"""Files of credentials, in both versions."""

from __future__ import annotations

import stat
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.files.webhdfs import token_file
from tony_core.hadoop.credentials import (
    Credentials,
    CredentialsError,
    am_rm_token,
    read_vint,
    url_string,
    vint,
)
from tony_core.hadoop.tokens import Token

TOKENS = st.builds(
    Token, st.binary(max_size=300), st.binary(max_size=30), st.text(max_size=9), st.text(max_size=9)
)
CREDENTIALS = st.builds(
    Credentials,
    st.dictionaries(st.text(max_size=9), TOKENS, max_size=4),
    st.dictionaries(st.text(max_size=9), st.binary(max_size=300), max_size=4),
)

# As a NodeManager (3.4.2) wrote it for a container: the token {identifier "who", password
# "secret", kind "KIND", service "service"} under "alias", and the secret "tony.secret".
WRITTEN_BY_JAVA = bytes.fromhex(
    "4844545300"
    "01"
    "05616c696173"
    "0377686f"
    "06736563726574"
    "044b494e44"
    "0773657276696365"
    "01"
    "0b746f6e792e736563726574"
    "0400010203"
)


class TestFiles:
    @settings(max_examples=200)
    @given(CREDENTIALS, st.sampled_from([0, 1]))
    def test_round_trip(self, credentials: Credentials, version: int) -> None:
        assert Credentials.decode(credentials.encode(version)) == credentials

    def test_what_java_wrote(self) -> None:
        found = Credentials.decode(WRITTEN_BY_JAVA)
        assert found.tokens == {"alias": Token(b"who", b"secret", "KIND", "service")}
        assert found.secrets == {"tony.secret": b"\0\1\2\3"}
        assert found.encode() == WRITTEN_BY_JAVA

    @given(CREDENTIALS, st.sampled_from([0, 1]), st.data())
    def test_what_is_cut_off(
        self, credentials: Credentials, version: int, data: st.DataObject
    ) -> None:
        raw = credentials.encode(version)
        cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
        with pytest.raises(CredentialsError):
            Credentials.decode(cut)

    @fuzz(
        data=mutations(
            WRITTEN_BY_JAVA, Credentials.decode(WRITTEN_BY_JAVA).encode(1), b"HDTS\0", b"HDTS\1"
        )
    )
    def test_anything(self, data: bytes) -> None:
        try:
            Credentials.decode(data)
        except CredentialsError:
            pass

    def test_other_versions(self) -> None:
        with pytest.raises(CredentialsError, match="unknown version 7"):
            Credentials.decode(b"HDTS\7")
        with pytest.raises(CredentialsError, match="begin with HDTS"):
            Credentials.decode(b"JUNK\0")
        with pytest.raises(ValueError, match="unknown version of credentials: 7"):
            Credentials().encode(7)

    def test_only_the_owner_reads_them(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens"
        credentials = Credentials().with_secret("s", b"x")
        credentials.write(str(path))
        credentials.write(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.glob("tokens*")) == [path]
        env = {"HADOOP_TOKEN_FILE_LOCATION": str(path)}
        assert Credentials.of_container(env) == credentials
        assert Credentials.of_container({}) == Credentials()


class TestContent:
    def test_by_kind(self) -> None:
        mine = Token(b"1", b"2", "YARN_AM_RM_TOKEN")
        other = Token(b"3", b"4", "HDFS_DELEGATION_TOKEN", "nn:8020")
        credentials = Credentials().with_token("a", mine).with_token("b", other)
        assert credentials.find("HDFS_DELEGATION_TOKEN") == [other]
        assert am_rm_token(credentials) == mine
        assert am_rm_token(credentials.without("YARN_AM_RM_TOKEN")) is None

    def test_nothing_secret_is_shown(self) -> None:
        shown = repr(Credentials().with_token("a", Token(b"who", b"word", "k")))
        shown += repr(Credentials().with_secret("s", b"word"))
        assert "who" not in shown
        assert "word" not in shown


class TestNumbers:
    @given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=2))
    def test_round_trip(self, value: int, rest: bytes) -> None:
        data = vint(value)
        assert read_vint(data + rest, 0) == (value, len(data))

    @pytest.mark.parametrize(
        ("value", "data"),
        [(0, "00"), (127, "7f"), (-112, "90"), (128, "8f80"), (-113, "8770"), (256, "8e0100")],
    )
    def test_as_hadoop_writes_them(self, value: int, data: str) -> None:
        assert vint(value).hex() == data


class TestText:
    """A token as WebHDFS takes it."""

    @given(TOKENS)
    def test_round_trip(self, token: Token) -> None:
        text = url_string(token)
        assert not set(text) - set(string.ascii_letters + string.digits + "-_")
        assert Token(*token_file.parse_url_string(text)[1:]) == token

    @pytest.mark.parametrize("text", ["x", "____", "é", ""])
    def test_no_token(self, text: str) -> None:
        with pytest.raises(CredentialsError):
            token_file.parse_url_string(text)
