"""Containers that are real: a folder, a script, a process group; started and ended as a
NodeManager does it.

The environment is written into the script without quoting, the group gets TERM and 250 ms later
KILL, and no other process is ended: what left the group lives on. Memory is that of the
process and all its descendants.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Callable, Dict, Optional

from tests.leaks import descendants, processes
from tony_core.hadoop.yarn.messages import yarn

GRACE_S = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TAIL = 4096

Fetch = Callable[[str], Path]
"""A local path for the URL of a file."""


class CannotLocalise(Exception):
    """A file is not what the launch context says; the text is the NodeManager's."""


class Script:
    """What a NodeManager makes of a launch context."""

    def __init__(self, folder: Path, logs: Path, cache: Path, fetch: Fetch) -> None:
        self.folder = folder
        self.logs = logs
        self._cache = cache
        self._fetch = fetch

    def write(self, context: yarn.ContainerLaunchContext, own: Dict[str, str]) -> None:
        """The folder with links to its files, the tokens and the script."""
        self.folder.mkdir(parents=True)
        self.logs.mkdir(parents=True)
        tokens = self.folder / "container_tokens"
        tokens.touch(0o600)
        tokens.write_bytes(context.tokens)
        own = {**own, "HADOOP_TOKEN_FILE_LOCATION": str(tokens), "PWD": str(self.folder)}
        own["LOG_DIRS"] = str(self.logs)
        lines = [
            "#!/bin/bash",
            "set -o pipefail -e",
            f'exec >"{self.logs}/prelaunch.out"',
            f'exec 2>"{self.logs}/prelaunch.err"',
            'echo "Setting up env variables"',
        ]
        requested = {entry.key: self._expanded(entry.value) for entry in context.environment}
        lines += [f'export {name}="{value}"' for name, value in {**requested, **own}.items()]
        lines.append('echo "Setting up job resources"')
        # As on a real node, a file that is asked for under two names arrives under one.
        once = {entry.value.encode(): entry for entry in context.local_resources}
        for entry in once.values():
            place = self._localise(entry.value)
            lines += [
                f'mkdir -p "{(self.folder / entry.key).parent}"',
                f'ln -sf -- "{place}" "{self.folder / entry.key}"',
            ]
        lines.append('echo "Launching container"')
        command = self._expanded(" ".join(context.command))
        lines.append(f'exec /bin/bash -c "{command}"')
        script = self.folder / "launch_container.sh"
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o700)

    def _expanded(self, text: str) -> str:
        text = text.replace("<LOG_DIR>", str(self.logs)).replace("<CPS>", ":")
        return re.sub(r"\{\{(\w+)\}\}", r"$\1", text)

    def _localise(self, resource: yarn.LocalResource) -> Path:
        url = resource.resource
        port = f":{url.port}" if url.port > 0 else ""
        location = f"{url.scheme}://{url.host}{port}{url.file}"
        try:
            source = self._fetch(location)
            stat = source.stat()
        except OSError:
            raise CannotLocalise(f"File does not exist: {url.file}") from None
        changed = stat.st_mtime_ns // 1_000_000
        if changed != resource.timestamp:
            raise CannotLocalise(
                f"Resource {location} changed on src filesystem - expected: "
                f'"{resource.timestamp}", was: "{changed}"'
            )
        name = re.sub(r"[^\w.-]", "_", location)
        place = self._cache / f"{changed}-{resource.type}-{name}" / source.name
        if not place.exists():
            scratch = self._cache / f"scratch-{time.time_ns()}"
            made = scratch / source.name
            scratch.mkdir(parents=True)
            if resource.type == 1:
                _unpack(source, made)
            else:
                shutil.copy2(source, made)
                made.chmod(0o500)
            place.parent.parent.mkdir(parents=True, exist_ok=True)
            scratch.rename(place.parent)
        return place


def _unpack(source: Path, place: Path) -> None:
    """As Hadoop does: by the name's end."""
    name = source.name.lower()
    if name.endswith((".tar", ".tar.gz", ".tgz")):
        with tarfile.open(source) as archive:
            archive.extractall(place, filter="tar")
    elif name.endswith((".zip", ".jar")):
        with zipfile.ZipFile(source) as packed:
            packed.extractall(place)
    else:
        shutil.copy2(source, place)


class RealContainer:
    """One, started."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._process = subprocess.Popen(
            ["/bin/bash", "launch_container.sh"],
            cwd=script.folder,
            env={},  # as on a site whose whitelist names none of the node's variables
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> Optional[int]:
        """How it ended, as Java says it."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """To its group."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def kill_now(self) -> None:
        """As a machine that loses its power: descendants too."""
        for process in descendants(self._process.pid, processes()):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.signal(signal.SIGKILL)
        self._process.wait(10)

    def memory(self) -> int:
        """Bytes that it and its descendants hold."""
        among = processes()
        pids = [self._process.pid, *(one.pid for one in descendants(self._process.pid, among))]
        return sum(_resident(pid) for pid in pids)

    def last_words(self) -> str:
        """What the NodeManager says of an end with an error."""
        logs = self._script.logs
        tail = _tail(logs / "prelaunch.err")
        words = f"Error file: prelaunch.err.\nLast {_TAIL} bytes of prelaunch.err :\n{tail}"
        found = sorted(one.name for one in logs.iterdir() if "stderr" in one.name.lower())
        if len(found) > 1:
            words += f"Error files: {', '.join(found)}.\n"
        if found:
            newest = max(found, key=lambda name: (logs / name).stat().st_mtime_ns)
            words += f"Last {_TAIL} bytes of {newest} :\n{_tail(logs / newest)}\n"
        return f"{words}\n"


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL:].decode("utf-8", "replace")
    except OSError:
        return ""
