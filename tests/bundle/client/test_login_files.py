"""Keytabs and ticket caches stay on the machine that submits, by whatever way a job names them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable, List

import pytest

from tests.bundle.jobs import job, messages_of, ref
from tests.hadoop.kerberos.test_files import CREDENTIALS, KEYTAB, cache
from tony_core.bundle.client import planning, staging
from tony_core.bundle.client.login_files import LARGEST, LoginFiles, find_kind
from tony_core.bundle.digests import Stamp

REFUSED = "and no job takes that along"
ANY = "of this machine, which a job cannot take along from here"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """The keytab of the login."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "service.keytab").write_bytes(KEYTAB)
    return folder / "service.keytab"


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    return folder


def link(target: Path, path: Path) -> None:
    path.symlink_to(target)


def hard_link(target: Path, path: Path) -> None:
    os.link(target, path)


def copy(target: Path, path: Path) -> None:
    shutil.copyfile(target, path)


def problems(planned: planning.Plan) -> List[str]:
    return messages_of(planned)


@pytest.mark.parametrize("way", [link, hard_link, copy])
def test_as_a_resource(
    way: Callable[[Path, Path], None], held: Path, src: Path, tmp_path: Path
) -> None:
    other = tmp_path / "notes.txt"
    way(held, other)
    for path in (held, other):
        for archive in (False, True):
            planned = planning.plan(
                job(src, files=(ref(path, "f", archive=archive),)),
                str(tmp_path / "root"),
                login_files=LoginFiles([str(held)]),
            )
            (message,) = problems(planned)
            assert REFUSED in message and str(held) in message


@pytest.mark.parametrize("way", [hard_link, copy])
def test_in_a_folder(
    way: Callable[[Path, Path], None], held: Path, src: Path, tmp_path: Path
) -> None:
    way(held, src / "deep" / "notes.txt")
    root = str(tmp_path / "root")
    for made in (job(src), job(files=(ref(src, "folder"),)), job(worker=(ref(src, "folder"),))):
        planned = planning.plan(made, root, login_files=LoginFiles([str(held)]))
        (message,) = problems(planned)
        assert "deep/notes.txt" in message and REFUSED in message
    planned = planning.plan(
        job(files=(ref(held.parent, "etc"),)), root, login_files=LoginFiles([str(held)])
    )
    assert any(REFUSED in message for message in problems(planned))


def test_a_link_in_a_folder_stays_a_link(held: Path, src: Path, tmp_path: Path) -> None:
    """What it leads to is not taken along."""
    link(held, src / "deep" / "notes.txt")
    root, made = tmp_path / "root", job(src)
    planned = planning.plan(made, str(root), login_files=LoginFiles([str(held)], refuse_all=True))
    staging.stage(planned, str(root), "local_1_0001", made, b"secret")
    staged = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in staged if path.name == "train.py"]
    assert not [path for path in staged if KEYTAB in path.read_bytes()]


@pytest.mark.parametrize(
    ("content", "kind"), [(KEYTAB, "a keytab"), (cache(4, CREDENTIALS), "a ticket cache")]
)
def test_any_other_where_the_caller_wants_none(
    content: bytes, kind: str, src: Path, tmp_path: Path
) -> None:
    other = src / "others"
    other.write_bytes(content)
    root = str(tmp_path / "root")
    for made in (job(src), job(files=(ref(other),))):
        assert not planning.plan(made, root, login_files=LoginFiles()).errors
        (message,) = problems(planning.plan(made, root, login_files=LoginFiles(refuse_all=True)))
        assert f"is {kind} {ANY}" in message and "hdfs://" in message


@pytest.mark.parametrize(
    "content",
    [b"", b"\x05", b"\x05\x02", b"\x05\x02data of a program", b"\x05\x04\x00", b"PK\x05\x02"],
)
def test_data_that_only_begin_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(content)
    assert find_kind(str(path)) == ""


@pytest.mark.parametrize("content", [KEYTAB, cache(4, CREDENTIALS)])
def test_damage_behind_the_first_entry_hides_nothing(content: bytes, tmp_path: Path) -> None:
    """Kerberos' library uses such a file, too."""
    path = tmp_path / "data"
    path.write_bytes(content + b"\0\0\1")
    assert find_kind(str(path))


def test_the_logins_own_file_is_known_at_any_size(held: Path, src: Path) -> None:
    """A ticket cache grows with each service."""
    held.write_bytes(KEYTAB.ljust(LARGEST + 9, b"\0"))
    login_files = LoginFiles([str(held)])
    for way in (link, hard_link, copy):
        other = src / way.__name__
        way(held, other)
        assert REFUSED in login_files.find_problem(str(other), Stamp.of(os.stat(other)))


def test_a_large_file_is_not_read(tmp_path: Path, src: Path) -> None:
    large = src / "large"
    large.write_bytes(KEYTAB.ljust(LARGEST + 1, b"\0"))
    large.chmod(0)

    assert LoginFiles(refuse_all=True).find_problem(str(large), Stamp.of(large.stat())) == ""


def test_files_that_do_not_exist_are_none(tmp_path: Path) -> None:
    LoginFiles([str(tmp_path / "none"), str(tmp_path)])
