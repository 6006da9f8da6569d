"""History is its owner's alone, unless the job names a place that is shared."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.second_user import UID, as_stranger, needs_root, open_folder
from tony_core.files.local import LocalFileSystem
from tony_core.history.access import prepare
from tony_core.history.reader import read_job
from tony_core.history.store import HistoryWriter, encode

__all__ = ["open_folder"]
ALICE, PORTAL, MEMBER, PORTALS = (UID + n for n in range(1, 5))  # three users; the portal's group


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Whatever the user's own is."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(root: Path, location: str = "") -> List[str]:
    """A job's history, and what the writer had to say."""
    warnings: List[str] = []
    made = HistoryWriter(str(root / "app_1"), on_trouble=warnings.append, location=location)
    made.begin([])
    made.add(encode({"n": 1, "text": "a story"}))
    made.summary({"job": {"state": "RUNNING"}, "tasks": [], "metrics": {}})
    made.config(b"<configuration/>")
    assert made.close() == []
    return warnings


def write_all(place: Path) -> None:
    """Every kind of file of a job that runs, at a place that the job names."""
    made = HistoryWriter(str(place / "app_1"), location=str(place))
    made.add(encode({"n": 1, "text": "a story"}))
    made.summary({"job": {"state": "RUNNING"}, "tasks": []})
    made.points(b'{"points":[["w:0",1.0,{"loss":1.0}]]}')
    made.changes(b'{"job":{"progress":0.5}}')
    made.config(b"<configuration/>")
    assert made.close() == []


def modes(root: Path) -> List[int]:
    """The job's folder's, and those of its files."""
    return [mode(root / "app_1"), *{mode(path) for path in (root / "app_1").iterdir()}]


def test_a_new_place_is_private(tmp_path: Path, umask: int) -> None:
    root = tmp_path / "deep" / "history"
    assert write(root) == []
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]
    assert mode(tmp_path / "deep") & 0o022 == 0


def test_an_open_place_of_ours_is_made_private_and_that_is_reported_once(
    tmp_path: Path, umask: int
) -> None:
    root = tmp_path / "history"
    root.mkdir()
    root.chmod(0o777)
    (warning,) = write(root)
    assert str(root) in warning and "private now" in warning
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]
    assert write(root) == []


@pytest.mark.parametrize(
    ("place", "folder", "file"),
    [
        (0o700, 0o700, 0o600),
        (0o755, 0o755, 0o644),
        (0o1777, 0o755, 0o644),
        (0o711, 0o700, 0o600),
        (0o750, 0o700, 0o600),  # what is made there belongs to the user's own group
        (0o2770, 0o2750, 0o640),
        (0o3773, 0o2770, 0o640),  # a portal's
        (0o3753, 0o2750, 0o640),
        (0o3770, 0o2750, 0o640),  # of a group of users, who are not to remove each other's
        (0o2773, 0o2750, 0o640),
    ],
)
def test_a_place_that_the_job_names_is_as_shared_as_its_rights(
    tmp_path: Path, umask: int, place: int, folder: int, file: int
) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(place)
    assert write(root, location=str(root)) == []
    assert mode(root) == place and modes(root) == [folder, file]


def test_a_place_that_the_job_names_and_that_is_missing_is_made_private(
    tmp_path: Path, umask: int
) -> None:
    root = tmp_path / "named"
    write(root, location=root.as_uri())
    assert mode(root) == 0o700 and modes(root) == [0o700, 0o600]


TRY = """
import shutil
result = []
for name in argument:
    for attempt in (
        lambda: os.listdir(name),
        lambda: open(name).read(),
        lambda: open(name, "a").write("x"),
        lambda: os.rename(name, name + "-mine"),
        lambda: os.chmod(name, 0o777),
        lambda: open(name + "/planted", "w"),
    ):
        try:
            attempt()
            result.append(name)
        except OSError:
            pass
"""


@needs_root
def test_another_user_reads_and_writes_nothing(open_folder: Path, umask: int) -> None:
    root = open_folder / "history"
    root.mkdir()
    root.chmod(0o777)
    write(root)
    paths = [str(path) for path in (root, root / "app_1", *(root / "app_1").iterdir())]
    assert as_stranger(TRY, paths) == []
    assert read_job(str(root), "app_1").events


@needs_root
def test_another_user_reads_what_is_shared_and_writes_nothing(
    open_folder: Path, umask: int
) -> None:
    root = open_folder / "shared"
    root.mkdir()
    root.chmod(0o755)
    write(root, location=str(root))
    story, planted = root / "app_1" / "events-0001.jsonl", root / "app_1" / "x"
    code = "result = [open(argument[0]).read(), os.access(argument[0], os.W_OK)]"
    text, writes = as_stranger(code, [str(story), str(planted)])
    assert "a story" in text and not writes
    assert as_stranger(TRY, [str(planted)]) == []


LIST = """
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
place, folder = argument["place"], argument["folder"]
result = [
    tried(lambda: os.listdir(place)),
    tried(lambda: sorted(os.listdir(folder))),
    tried(lambda: open(folder + "/events-0001.jsonl").read()),
    tried(lambda: open(folder + "/summary.json").read()),
    tried(lambda: open(folder + "/summary.json", "a").write("x")),
    tried(lambda: open(folder + "/planted", "w").write("x")),
    tried(lambda: os.rename(folder, folder + "-mine")),
    tried(lambda: os.rmdir(folder)),
]
"""
REMOVE = "import shutil; shutil.rmtree(argument); result = os.path.exists(argument)"


@needs_root
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007])
def test_a_portals_group_reads_what_users_write_and_no_other_user_does(
    open_folder: Path, umask: int
) -> None:
    """alice is in no group of the portal's; bob is any other user, who may write there, too."""
    place = open_folder / "shared"
    place.mkdir()
    os.chown(place, PORTAL, PORTALS)
    place.chmod(0o3773)
    folder = place / "app_1"
    refusal = _as_another_user(lambda: write_all(place), uid=ALICE, umask=umask)
    assert refusal == ""
    found = folder.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (ALICE, PORTALS, 0o2770)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["events-0001.jsonl", "live-0002.jsonl", "metrics-0001.jsonl", "summary.json",
                     "tony-final.xml"]  # fmt: skip
    for path in folder.iterdir():
        found = path.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (ALICE, PORTALS, 0o640)

    asked = {"place": str(place), "folder": str(folder)}
    assert set(as_stranger(LIST, asked)) == {"PermissionError"}
    listed, inside, story, summary, written, *_ = as_stranger(
        LIST, asked, uid=MEMBER, groups=[PORTALS]
    )
    assert listed == ["app_1"] and inside == names
    assert "a story" in story and "RUNNING" in summary
    assert written == "PermissionError", "what a job's files say is its owner's word"
    assert folder.exists(), "only the place's owner removes what lies in it"
    assert as_stranger(REMOVE, str(folder), uid=PORTAL, groups=[PORTALS]) is False


@needs_root
def test_without_the_bit_for_its_group_a_place_of_others_stays_private(open_folder: Path) -> None:
    place = open_folder / "shared"
    place.mkdir()
    os.chown(place, PORTAL, PORTALS)
    place.chmod(0o1773)
    assert _as_another_user(lambda: write_all(place), uid=ALICE) == ""
    assert modes(place) == [0o700, 0o600]


@needs_root
def test_a_folder_of_another_group_is_made_private_and_that_is_reported(open_folder: Path) -> None:
    place = open_folder / "shared"
    (place / "app_1").mkdir(parents=True)
    os.chown(place, PORTAL, PORTALS)
    place.chmod(0o3773)
    (warning,) = write(place, location=str(place))
    assert "app_1" in warning and "private now" in warning
    assert modes(place) == [0o700, 0o600]


def _refusal_as_another_user(folder: Path) -> str:
    """What :func:`prepare` raises under another uid."""
    return _as_another_user(lambda: prepare(LocalFileSystem(), str(folder), str(folder.parent)))


def _as_another_user(work: Callable[[], object], uid: int = UID, umask: int = 0o022) -> str:
    """What it raises in a process under another uid, with the modules loaded here."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(umask)
            work()
        except BaseException as error:  # the child never returns to pytest
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        words = stream.read().decode()
    os.waitpid(child, 0)
    return words


@needs_root
def test_a_folder_that_another_user_made_first_is_not_written(open_folder: Path) -> None:
    open_folder.chmod(0o1777)
    (open_folder / "app_1").mkdir()
    (open_folder / "app_1").chmod(0o777)
    refusal = _refusal_as_another_user(open_folder / "app_1")
    assert refusal.startswith("PermissionError: ")
    assert "belongs to the user with the uid 0" in refusal
    assert _refusal_as_another_user(open_folder / "app_2") == ""
