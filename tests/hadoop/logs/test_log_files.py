"""Aggregated logs: what clusters wrote is read anywhere; damage is reported, never waited for."""

from __future__ import annotations

import random
import re
from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import bounds, fuzz, mutations
from tests.hadoop.logs.logfiles import (
    BIG,
    RECORDED,
    WRITTEN,
    Counted,
    containers,
    logs_of,
    opened,
    recorded,
    tfile,
    vlong,
)
from tony_core.hadoop.logs import ifile as ifiles
from tony_core.hadoop.logs import tfile as tfiles
from tony_core.hadoop.logs.datainput import BytesSource, DataInput, FormatError, Unsupported
from tony_core.hadoop.logs.ifile import IFile, is_ifile
from tony_core.hadoop.logs.tfile import TFile

PLAIN = [name for name in RECORDED if not name.endswith("-gz")]


@pytest.mark.parametrize("name", RECORDED)
class TestWhatClustersWrote:
    def test_every_container_has_every_log(self, name: str) -> None:
        file = opened(name, BytesSource(recorded(name)))
        assert file.containers() == RECORDED[name]["containers"]
        for container in file.containers():
            logs = logs_of(file, container)
            assert {n: logs[n].read(0, 1 << 23) for n in WRITTEN} == WRITTEN
            assert {n: logs[n].size for n in WRITTEN} == {n: len(t) for n, t in WRITTEN.items()}

    def test_any_place_can_be_read_in_any_order(self, name: str) -> None:
        file = opened(name, BytesSource(recorded(name)))
        log = logs_of(file, file.containers()[-1])["big.log"]
        places = random.Random(name)
        for _ in range(40):
            at, length = places.randrange(len(BIG) + 10), places.randrange(200_000)
            assert log.read(at, length) == BIG[at : at + length]
        assert log.read(len(BIG) - 5, 100) == BIG[-5:]
        assert log.read(len(BIG), 1) == b""

    def test_a_container_that_is_not_there(self, name: str) -> None:
        assert not opened(name, BytesSource(recorded(name))).logs("container_1_0001_01_000009")

    def test_a_file_that_was_cut_off(self, name: str) -> None:
        whole = recorded(name)
        for length in (0, 10, 40, 1000, len(whole) // 2, len(whole) - 33, len(whole) - 1):
            with pytest.raises(FormatError, match="cut off"):
                opened(name, BytesSource(whole[:length]))

    def test_damage_anywhere_is_an_error_or_other_text(self, name: str) -> None:
        whole = bytearray(recorded(name))
        places = random.Random(name)
        for _ in range(60):
            damaged = bytearray(whole)
            for _ in range(places.randrange(1, 4)):
                # Mostly where the tables are.
                near = len(whole) - places.randrange(2000) - 1
                damaged[near if places.random() < 0.7 else places.randrange(len(whole))] ^= (
                    1 << places.randrange(8)
                )
            try:
                file = opened(name, BytesSource(bytes(damaged)))
                for container in file.containers()[:3]:
                    for log in (file.logs(container) or [])[:20]:
                        assert len(log.content.read(0, 1 << 16)) <= 1 << 16
            except FormatError:
                pass


@pytest.mark.parametrize("name", PLAIN)
def test_the_end_of_a_large_log_costs_little(name: str) -> None:
    source = Counted(recorded(name))
    file = opened(name, source)
    log = logs_of(file, str(RECORDED[name]["containers"][0]))["big.log"]  # type: ignore[index]
    assert log.read(len(BIG) - 1000, 1000) == BIG[-1000:]
    assert source.bytes < 20_000


def test_chunks_of_one_size_are_leapt_over() -> None:
    text = random.Random(1).randbytes(1 << 20)
    logs = [("log", text * 8), ("next", b"here")]
    source = Counted(tfile([[("container_x", logs)]], sizes=[1000] * 9000))
    found = logs_of(TFile(source), "container_x")
    assert found["next"].read(0, 10) == b"here"
    assert source.reads < 300
    assert found["log"].read(5_000_000, 3000) == (text * 8)[5_000_000:5_003_000]


def test_blocks_are_opened_only_as_far_as_needed() -> None:
    names = containers(40)
    blocks = [[(name, [("stdout", b"x" * 10_000)])] for name in names]
    source = Counted(tfile(blocks, compression="gz"))
    file = TFile(source)
    before = source.bytes
    assert logs_of(file, names[1])["stdout"].size == 10_000
    assert source.bytes - before < 500
    assert file.containers() == names


def test_what_cannot_be_expanded_is_reported() -> None:
    with pytest.raises(Unsupported, match="'lzo'; only 'gz' and 'none'"):
        TFile(BytesSource(tfile([[("container_x", [])]], compression="lzo"))).containers()


def test_the_two_kinds_are_distinguished() -> None:
    for name, facts in RECORDED.items():
        assert is_ifile(BytesSource(recorded(name)), str(facts["application"])) == ("ifile" in name)


def test_the_index_of_another_application_is_none_of_ours() -> None:
    with pytest.raises(FormatError, match="application_1_0001"):
        IFile(BytesSource(recorded("ifile-3.4.2")), "application_1_0001")


def test_a_log_longer_than_its_container_is_reported() -> None:
    good = tfile([[("container_x", [("stdout", b"0123456789")])]])
    bad = good.replace(b"\x00\x0210", b"\x00\x0299")
    file = TFile(BytesSource(bad))
    with pytest.raises(FormatError, match="end before"):
        logs_of(file, "container_x")["stdout"].read(0, 100)
    wrong = good.replace(b"\x00\x0210", b"\x00\x02xx")
    with pytest.raises(FormatError, match=re.escape("'stdout' has a length of 'xx'")):
        TFile(BytesSource(wrong)).containers()


class TestNumbers:
    @given(st.integers(-(1 << 63), (1 << 63) - 1))
    def test_every_number_comes_back(self, value: int) -> None:
        place = DataInput(BytesSource(vlong(value) + b"x"))
        assert place.vlong() == value
        assert place.take(1) == b"x"

    @pytest.mark.parametrize(
        ("text", "value"),
        [("9029 2c37", 2698295), ("a8 14f7", 5367), ("8fef fa72", -1049998), ("80", None)],
    )
    def test_those_of_a_real_file(self, text: str, value: int) -> None:
        place = DataInput(BytesSource(bytes.fromhex(text)))
        if value is None:
            with pytest.raises(FormatError):
                place.vlong()
        else:
            assert place.vlong() == value


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
LOGS = st.lists(st.tuples(NAMES, st.binary(max_size=400)), max_size=5, unique_by=lambda log: log[0])


_INDEXED = recorded("ifile-3.4.2")
_TAIL = int.from_bytes(_INDEXED[-36:-32], "big") + 36  # the index, its length and the mark
_APPLICATION = str(RECORDED["ifile-3.4.2"]["application"])
_SMALL = [
    tfile(
        [[(name, [("stdout", b"some text\n" * 30), ("stderr", b"")]) for name in containers(2)]]
        * 2,
        compression=compression,
        sizes=[50] * 20,
    )
    for compression in ("none", "gz")
]


def bombs(compression: str, size: int) -> bytes:
    """A few kilobytes that expand to so many."""
    return tfile([[(containers(1)[0], [("stdout", bytes(size))])]], compression=compression)


class TestMadeToMeasure:
    @given(
        st.lists(st.lists(LOGS, max_size=3), max_size=3),
        st.lists(st.integers(1, 60), max_size=40),
        st.sampled_from(["none", "gz"]),
        st.data(),
    )
    @settings(deadline=None, max_examples=120)
    def test_what_was_written_is_read(
        self,
        blocks: List[List[List[Tuple[str, bytes]]]],
        sizes: List[int],
        compression: str,
        data: st.DataObject,
    ) -> None:
        names = iter(containers(9))
        given = [[(next(names), logs) for logs in block] for block in blocks]
        file = TFile(BytesSource(tfile(given, compression=compression, sizes=sizes)))
        wanted = {key: dict(logs) for block in given for key, logs in block}
        assert file.containers() == list(wanted)
        for key, logs in wanted.items():
            found = logs_of(file, key)
            assert {name: log.size for name, log in found.items()} == {
                name: len(text) for name, text in logs.items()
            }
            for name, text in logs.items():
                at = data.draw(st.integers(0, len(text) + 2))
                assert found[name].read(at, 7) == text[at : at + 7]
                assert found[name].read(0, 1000) == text

    @fuzz(data=st.binary(max_size=300))
    def test_anything_else_is_an_error(self, data: bytes) -> None:
        with pytest.raises(FormatError):
            TFile(BytesSource(data))
        with pytest.raises(FormatError):
            IFile(BytesSource(data), "application_1_0001")

    @fuzz(data=mutations(*_SMALL, bombs("gz", 1 << 20)))
    def test_damage_never_hangs(self, data: bytes) -> None:
        try:
            file = TFile(BytesSource(data))
            for key in file.containers():
                for log in file.logs(key) or ():
                    assert len(log.content.read(0, 1000)) <= 1000
        except FormatError:
            pass

    @fuzz(data=mutations(_INDEXED[-_TAIL:]))
    def test_a_damaged_index_never_hangs(self, data: bytes) -> None:
        try:
            file = IFile(BytesSource(_INDEXED[:-_TAIL] + data), _APPLICATION)
            for key in file.containers():
                for log in file.logs(key):
                    assert len(log.content.read(0, 1000)) <= 1000
        except FormatError:
            pass


class TestBombs:
    def test_what_expands_takes_as_much_memory_as_was_asked_for(self) -> None:
        file = TFile(BytesSource(bombs("gz", 50 << 20)))
        (log,) = file.logs(containers(1)[0]) or ()
        assert log.content.size == 50 << 20
        with bounds(seconds=10.0, megabytes=8.0):
            assert log.content.read(40 << 20, 1000) == bytes(1000)

    def test_many_logs_in_many_chunks(self) -> None:
        """The time for each log does not grow with the chunks before it."""
        logs = [(f"l{number}", b"x") for number in range(1000)]
        sizes = [1 + number % 2 for number in range(6000)]
        whole = tfile([[(containers(1)[0], logs)]], sizes=sizes, compression="gz")
        with bounds(seconds=10.0):
            assert len(TFile(BytesSource(whole)).logs(containers(1)[0]) or ()) == 1000

    def test_blocks_that_stand_in_one_another(self) -> None:
        whole = tfile([[(containers(1)[0], [("l", b"x" * 1000)])]], repeat=10)
        with pytest.raises(FormatError, match="in one another"):
            TFile(BytesSource(whole))

    def test_more_logs_than_any_node_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tfiles, "_MOST_ENTRIES", 10)
        logs = [(f"l{number}", b"") for number in range(6)]
        with pytest.raises(FormatError, match="more than 10 logs"):
            TFile(BytesSource(tfile([[(name, logs) for name in containers(2)]]))).containers()
        monkeypatch.setattr(ifiles, "_MOST_LOGS", 2)
        name = "ifile-3.4.2"
        with pytest.raises(FormatError, match="more than 2 logs"):
            IFile(BytesSource(recorded(name)), str(RECORDED[name]["application"]))
