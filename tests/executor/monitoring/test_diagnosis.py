"""The last lines of a program's stderr."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from tony_executor.monitoring import diagnosis


class TestTail:
    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", []),
            (b"\n\n\n", []),
            (b"a\nb\nc", ["b", "c"]),
            (b"a\r\nb\r\n", ["a", "b"]),
            (b"\xe2\x82", ["\ufffd"]),
            (b"a\x00b\n", ["a\ufffdb"]),
        ],
    )
    def test_lines(self, tmp_path: Path, data: bytes, lines: List[str]) -> None:
        path = tmp_path / "log"
        path.write_bytes(data)
        assert diagnosis.last_lines(str(path), 0, 2) == lines

    def test_only_what_came_since(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b"old\nnew\n")
        assert diagnosis.last_lines(str(path), 4, 5) == ["new"]
        assert diagnosis.last_lines(str(path), 99, 5) == []
        assert diagnosis.last_lines(str(path), 0, 0) == []
        assert diagnosis.last_lines(str(tmp_path / "none"), 0, 5) == []

    def test_no_half_line_at_the_beginning(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b"x" * diagnosis.MAX_BYTES + b"\nlast\n")
        assert diagnosis.last_lines(str(path), 0, 5) == ["last"]

    def test_paths_are_shown_from_the_programs_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "disk" / "container_3" / "session-1"
        folder.mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "disk")
        linked = tmp_path / "link" / "container_3" / "session-1"
        assert diagnosis.relative_paths(
            str(linked),
            [
                f"python3: can't open file '{folder}/nope.py'",
                f'File "{linked}/train.py", line 3, in {linked.parent}/venv/lib',
                f"no file {folder}0/a, /private{folder}/a, {folder.parent}.tar; {folder}.",
                f"file://{folder}",
            ],
        ) == [
            "python3: can't open file './nope.py'",
            'File "./train.py", line 3, in ../venv/lib',
            f"no file ../session-10/a, /private{folder}/a, {folder.parent}.tar; ..",
            "file://.",
        ]
        assert diagnosis.relative_paths("/", ["/tmp/a"]) == ["/tmp/a"]
