from __future__ import annotations

import os

import pytest

from tests.fuzzing import bounds, fuzz, mutations, pieces
from tests.second_user import UID, as_stranger, needs_root, start_stranger


@needs_root
def test_a_stranger_is_another_user(open_folder, tmp_path):
    (open_folder / "seen").write_text("x")
    (tmp_path / "hidden").write_text("x")
    code = """
    result = [os.getuid(), os.getgid(), os.getgroups(), []]
    for path in argument:
        try:
            open(path).close()
            result[3].append(path)
        except PermissionError:
            pass
    """
    paths = [str(open_folder / "seen"), str(tmp_path / "hidden")]
    assert as_stranger(code, paths) == [UID, UID, [], paths[:1]]


@needs_root
def test_a_stranger_in_the_background():
    with start_stranger("print(os.getuid()); time.sleep(argument)", 60) as process:
        assert process.stdout.readline() == f"{UID}\n"
        process.kill()


@needs_root
def test_a_strangers_error_fails_the_test():
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        as_stranger("1/0")


def test_bounds_on_memory_and_time():
    with pytest.raises(AssertionError, match="MB of memory"), bounds(megabytes=1):
        bytearray(3_000_000)
    with pytest.raises(AssertionError, match="of the processor"), bounds(seconds=0.0):
        sum(range(100_000))
    with bounds(megabytes=8):
        bytearray(3_000_000)


@fuzz(data=mutations(b"sample", b"other"))
def test_mutations_are_bytes(data):
    assert isinstance(data, bytes)
    assert b"".join(pieces(data, [1, 3])) == data


def test_root_is_what_ci_has():
    assert os.geteuid() == 0 or not os.environ.get("CI"), "CI runs what needs another user, too"
