"""Java's properties files, against what a real ``java.util.Properties`` reads and writes."""

from __future__ import annotations

import random
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tony_azkaban.java_properties import PropertiesError, dump, line, load, parse

JAVA = Path(__file__).with_name("RoundTrip.java")

# What a JVM (17) made of each of these texts.
RECORDED = [
    (b"a=b\nc:d\ne f\ng\n", {"a": "b", "c": "d", "e": "f", "g": ""}),
    (b"  a  =  b  \n", {"a": "b  "}),
    (b"a\t:\tb\n\x0cc\x0cd\n", {"a": "b", "c": "d"}),
    (b"a==b\nc = = d\ne  f=g\n", {"a": "=b", "c": "= d", "e": "f=g"}),
    (b"# x\n! y\n  # z\na=b\n", {"a": "b"}),
    (b"a\\=b=c\nd\\ e f\n\\#g=h\n", {"a=b": "c", "d e": "f", "#g": "h"}),
    (b"a=b\\\n   c\\\r\n\td\n", {"a": "bcd"}),
    (b"a=b\\\\\nc=d\n", {"a": "b\\", "c": "d"}),
    (b"a=b\\\n# no comment\nc=d\n", {"a": "b# no comment", "c": "d"}),
    (b"a=b\\\n   \nc=d\n", {"a": "b", "c": "d"}),
    (b"\\\n#k=v\nc=d\n", {"c": "d"}),
    (b"\\\n\n#k=v\nc=d\n", {"c": "d"}),
    (b"a=b\\", {"a": "b"}),
    (b"a=b\n\\", {"a": "b", "": ""}),
    (b"a=b\n\\\n", {"a": "b", "": ""}),
    (b"a=b\n\\\r\n", {"a": "b"}),
    (b"a=b\rc=d\r\n\ne=f", {"a": "b", "c": "d", "e": "f"}),
    (b"a=\\u0041\\u00e4\\uD83E\\uDD86\n", {"a": "Aä🦆"}),
    (b"a=\xe4\xf6\n", {"a": "äö"}),
    (b'a=\\t\\n\\r\\f\\q\\"\n', {"a": '\t\n\r\fq"'}),
    (b"=v\n", {"": "v"}),
    (b"a=1\na=2\n", {"a": "2"}),
    (b"", {}),
]

TEXT = st.text(
    st.one_of(
        st.sampled_from(" \t\f\r\n\\=:#!äß漢🦆\x00\x7f\x85\u2028'\"${}"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize(("data", "found"), RECORDED)
def test_recorded(data: bytes, found: Dict[str, str]) -> None:
    assert load(data) == found


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_is_written_is_read(parsed: Dict[str, str]) -> None:
    assert load(dump(parsed)) == parsed


@fuzz(data=mutations(*(data for data, _ in RECORDED), b"a=\\u0041\\\r\n b\\:c" * 20))
def test_any_file_is_read_or_refused_with_its_line(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        found = parse(text)
    except PropertiesError as error:
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 1
        return
    assert all(a.end <= b.start for a, b in pairwise(found))
    for each in found:
        # Each says the same when it stands by itself.
        by_itself = {one.key: one.value for one in parse(text[each.start : each.end])}
        assert by_itself == {each.key: each.value}


@pytest.mark.parametrize("unit", ["\\\n", "a\\\n", "\\\\", "\r", "\\u0041"])
def test_a_large_file_is_read_in_good_time(unit: str) -> None:
    with bounds(seconds=3):
        parse(unit * (50_000 // len(unit)))


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=b"])
def test_a_character_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PropertiesError, match="four hexadecimal digits"):
        parse(text)


def test_a_line_is_written_as_java_does() -> None:
    assert line("a b", " c d\t=é") == "a\\ b=\\ c d\\t\\=\\u00E9"


# ------------------------------------------------------------------ a real JVM


@pytest.fixture
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.fail("there is no java on the PATH", pytrace=False)
    return found


def drawn(seed: int) -> List[str]:
    """Texts of the marks that matter, many of them no sense at all."""
    chance = random.Random(seed)
    marks = ["a", "b", " ", "\t", "\f", "\\", "\\", "\n", "\r", "\r\n", "#", "!", "=", ":", "é",
             "\\u0041", "\\uD83E\\uDD86", "\\u00", "\\t", "\\n"]  # fmt: skip
    return ["".join(chance.choices(marks, k=chance.randint(0, 24))) for _ in range(3000)]


def in_hex(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def read_here(text: str) -> Optional[Dict[str, str]]:
    try:
        return load(text.encode("latin-1"))
    except PropertiesError:
        return None


@pytest.mark.slow
def test_against_a_jvm(java: str, tmp_path: Path) -> None:
    """What it reads of 3000 texts, and of what we write for them, and what it writes itself."""
    texts = [*(data.decode("latin-1") for data, _ in RECORDED), *drawn(20)]
    ours = [(found, dump(found).decode("latin-1")) for found in map(read_here, texts) if found]
    assert all(read_here(text) == found for found, text in ours)
    texts += [text for _, text in ours]
    parsed = "".join(f"{text.encode('latin-1').hex()}\n" for text in texts)
    done = subprocess.run(
        [java, str(JAVA)], input=parsed, capture_output=True, text=True, timeout=200, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == 2 * len(texts)
    refused = 0
    for text, read, written in zip(texts, answers[::2], answers[1::2], strict=True):
        found = read_here(text)
        if read == "refused":
            assert found is None, repr(text)
            refused += 1
            continue
        assert found is not None, repr(text)
        expected = " ".join(sorted(f"{in_hex(k)}={in_hex(v)}" for k, v in found.items()))
        assert read == expected, repr(text)
        # What Java stores of it, with its comment and date, is the same to us.
        assert load(bytes.fromhex(written)) == found, repr(text)
    assert 0 < refused < len(texts) / 2
