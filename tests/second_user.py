"""Another user of the same machine, really: code that runs under a uid of its own.

Only root can become another user: without root these tests are skipped with that reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

import pytest

UID = 64222  # no user of a Debian system has it
_PRELUDE = """
import ctypes, fcntl, glob, http.client, json, os, select, signal, socket, ssl, stat, struct, sys
import encodings.idna, time, urllib.error, urllib.parse, urllib.request
os.chdir("/")
os.setgroups({groups}); os.setgid({uid}); os.setuid({uid})
argument = json.load(sys.stdin)
result = None
"""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can run a part of the test as another user"
)


def as_stranger(
    code: str,
    argument: Any = None,
    timeout: float = 60.0,
    uid: int = UID,
    groups: Sequence[int] = (),
) -> Any:
    """Run Python code as another user; ``argument`` in, what it leaves in ``result`` out.

    The common modules are imported already: after the change of user the folder of this Python
    may be out of reach. Code that raises fails the test.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _command(code, uid, groups)],
        input=json.dumps(argument),
        capture_output=True,
        text=True,
        timeout=timeout,
        umask=0o022,
    )
    assert done.returncode == 0, f"the stranger's code failed:\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def start_stranger(code: str, argument: Any = None) -> subprocess.Popen[str]:
    """The same in the background, for instance a server; prints what the code prints.

    The caller ends it.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-u", "-c", _command(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        umask=0o022,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(argument))
    process.stdin.close()
    return process


def _command(code: str, uid: int = UID, groups: Sequence[int] = ()) -> str:
    prelude = _PRELUDE.format(uid=uid, groups=list(groups))
    return prelude + textwrap.dedent(code) + "\nprint(json.dumps(result))\n"


@contextmanager
def as_second_user() -> Iterator[None]:
    """This process itself with the other user's rights; whatever it needs is imported before."""
    os.setegid(UID)
    os.seteuid(UID)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike ``tmp_path``: as a home folder often is."""
    folder = Path(tempfile.mkdtemp(prefix="tony-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
