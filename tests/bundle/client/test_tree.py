"""Folders as content."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional

import pytest

from tony_core.bundle.client.tree import (
    EXCLUDED,
    Changed,
    Entry,
    Tree,
    Type,
    changed,
    copy_tree,
    hash_tree,
    listing_digest,
    read_ignores,
    scan,
)
from tony_core.bundle.digests import DigestCache


def hashed(folder: Path, cache: Optional[DigestCache] = None, **options: object) -> Tree:
    tree = scan(str(folder), **options)  # type: ignore[arg-type]
    hash_tree(tree, cache or DigestCache(str(folder), None))
    return tree


def make(folder: Path) -> Path:
    (folder / "pkg" / "empty").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("a")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg/a.py")
    (folder / "dangling").symlink_to("not/there")
    (folder / "new\nline \udcff".encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    Path(os.fsdecode(os.fsencode(folder) + b"/bytes-\xff")).write_text("odd name")
    return folder


def test_a_copy_is_the_same_tree(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    os.utime(source / "pkg" / "a.py", (1000, 1000))
    tree = hashed(source)
    copy_tree(tree, str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    assert hashed(copy).digest == tree.digest
    assert (copy / "pkg" / "empty").is_dir()
    assert os.readlink(copy / "link") == "pkg/a.py"
    assert os.readlink(copy / "dangling") == "not/there"
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o555
    assert (copy / "pkg" / "a.py").stat().st_mode & 0o777 == 0o444
    assert (copy / "pkg" / "a.py").stat().st_mtime == 1000  # bytecode depends on it
    assert not os.path.samefile(copy / "run.sh", source / "run.sh")


@pytest.mark.parametrize("change", ["byte", "exec", "name", "empty folder", "link"])
def test_what_a_program_can_tell_changes_the_digest(tmp_path: Path, change: str) -> None:
    source = make(tmp_path / "source")
    before = hashed(source).digest
    if change == "byte":
        (source / "pkg" / "a.py").write_text("b")
    elif change == "exec":
        (source / "run.sh").chmod(0o644)
    elif change == "name":
        (source / "run.sh").rename(source / "run2.sh")
    elif change == "empty folder":
        (source / "pkg" / "empty").rmdir()
    else:
        (source / "link").unlink()
        (source / "link").symlink_to("pkg")
    assert hashed(source).digest != before


def test_what_it_cannot_tell_does_not(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    before = hashed(source).digest
    (source / "run.sh").chmod(0o700)
    os.utime(source / "pkg" / "a.py", (1, 1))
    assert hashed(source).digest == before


def test_no_two_listings_read_the_same() -> None:
    one = [Entry("a", Type.LINK, target="b"), Entry("c", Type.FOLDER)]
    other = [Entry("a", Type.LINK, target="b\nd-c"), Entry("", Type.FOLDER)]
    assert listing_digest(one) != listing_digest(other)


def test_links_out_of_the_tree(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "in").symlink_to(source / "file")
    (source / "sub" / "up").symlink_to("../../beside")
    (source / "abs").symlink_to("/etc/hosts")
    (source / "file").write_text("x")
    tree = hashed(source)
    targets = {entry.path: entry.target for entry in tree.entries if entry.type is Type.LINK}
    assert targets == {
        "sub/in": "../file",
        "sub/up": str(tmp_path / "beside"),
        "abs": "/etc/hosts",
    }
    assert sorted(tree.links_out) == ["abs -> /etc/hosts", "sub/up -> ../../beside"]


def test_all_files_that_cannot_be_shipped_are_reported_at_once(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(source)  # a socket's path is short
        try:
            bound.bind("sock")
        finally:
            os.chdir(here)
        tree = scan(str(source))
    assert len(tree.problems) == 2
    assert "pipe: is a named pipe" in tree.problems[0]
    assert "sock: is a socket" in tree.problems[1]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    (source / "run.sh").chmod(0)
    (source / "pkg").chmod(0)
    tree = hashed(source)
    (source / "pkg").chmod(0o755)
    assert len(tree.problems) == 2


def test_exclusions(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    for name in (".git", "pkg/__pycache__", "data/big", "out"):
        (source / name).mkdir(parents=True)
        (source / name / "x.log").write_text("x")
    (source / ".tonyignore").write_text("# not these\n*.log\n/data/big/\n")
    names = {e.path for e in scan(str(source), EXCLUDED + read_ignores(str(source))).entries}
    assert {"data", "out"} <= names
    assert not {n for n in names if "git" in n or "pycache" in n or "log" in n or "big" in n}
    # A venv or resource is taken as it is.
    assert "pkg/__pycache__/x.log" in {entry.path for entry in scan(str(source)).entries}


def test_a_file_is_hashed_again_only_when_it_changed(tmp_path: Path) -> None:
    source, store = make(tmp_path / "source"), str(tmp_path / "digests")
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1000, 1000))
    cache = DigestCache(str(source), store)
    first = hashed(source, cache)
    cache.save()
    # A change time cannot be set back, so nothing young is remembered: wait it out.
    assert DigestCache(str(source), store)._known == {}
    time.sleep(2.1)
    cache = DigestCache(str(source), store)
    hashed(source, cache)
    cache.save()
    again = DigestCache(str(source), store)
    assert hashed(source, again).digest == first.digest
    assert again.hashed_bytes == 0
    # Same size, and the modification time set back: the change time tells.
    (source / "pkg" / "a.py").write_text("b")
    os.utime(source / "pkg" / "a.py", (1000, 1000))
    changed = DigestCache(str(source), store)
    assert hashed(source, changed).digest != first.digest
    assert changed.hashed_bytes == 1


def test_a_damaged_cache_is_no_cache(tmp_path: Path) -> None:
    source, store = make(tmp_path / "source"), tmp_path / "digests"
    time.sleep(2.1)
    cache = DigestCache(str(source), str(store))
    digest = hashed(source, cache).digest
    cache.save()
    [path] = store.iterdir()
    path.write_text('{"source": 3')
    assert hashed(source, DigestCache(str(source), str(store))).digest == digest


@pytest.mark.parametrize("how", ["rewritten", "removed", "within the clock's grain"])
def test_a_change_between_hashing_and_copying_is_refused(tmp_path: Path, how: str) -> None:
    source = make(tmp_path / "source")
    tree = hashed(source)
    victim = source / "pkg" / "a.py"
    if how == "removed":
        victim.unlink()
    elif how == "rewritten":
        victim.write_text("longer")
    else:
        # As if the file had been written again without the stamp showing it.
        entry = next(entry for entry in tree.entries if entry.path == "pkg/a.py")
        victim.write_text("z")
        entry.stamp = type(entry.stamp).of(victim.stat())  # type: ignore[union-attr]
    with pytest.raises(Changed, match="while it was being staged"):
        copy_tree(tree, str(tmp_path / "copy"))


def test_a_file_that_we_print_into_ourselves_is_named(tmp_path: Path) -> None:
    script = "import sys; from tony_core.bundle.client.tree import changed; print(changed('log'))"
    with open(tmp_path / "log", "w") as log:
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, stdout=log, check=True)
    text = (tmp_path / "log").read_text()
    assert "it is what this command prints into; write that elsewhere, or name it in" in text
    (tmp_path / "other").touch()
    assert "prints into" not in str(changed(str(tmp_path / "other")))
