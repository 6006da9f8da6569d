"""A stand-in for YARN's setuid program container-executor, for a NodeManager that runs as root.

LinuxContainerExecutor has a program do what takes another user's rights. Hadoop's own is written
in C, and no registry of packages has it. This one understands the same commands::

    container-executor --checksetup
    container-executor USER YARN-USER 0 APP CONTAINER TOKENS LOCAL-DIRS LOG-DIRS LOCALIZER...
    container-executor USER YARN-USER 1 APP CONTAINER WORK-DIR SCRIPT TOKENS --http
                       PID-FILE LOCAL-DIRS LOG-DIRS RESOURCES
    container-executor USER YARN-USER 2 PID SIGNAL
    container-executor USER YARN-USER 3 PATH [BASE-DIR...]
    container-executor USER YARN-USER 5 PATH

and leaves the same owners and permissions behind: a container's files are its user's, and the
group of the NodeManager may read them. It checks less, and it isolates nothing. Users are those of
the list ``kerberos/passwd``, whatever accounts this machine has. It stands in the cluster's folder
as ``bin/container-executor`` and runs there without anything else of this project.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

CLUSTER = Path(sys.argv[0]).resolve().parent.parent

INVALID_COMMAND = 3
INVALID_USER = 2
INVALID_PID = 9

_SEPARATOR = "%"


def main(arguments: Sequence[str]) -> int:
    """The exit codes are those of the original, as far as YARN looks at them."""
    if arguments[:1] == ["--checksetup"]:
        return 0
    if len(arguments) < 4 or arguments[2] not in _COMMANDS:
        print(f"container-executor: unknown command: {' '.join(arguments)}", file=sys.stderr)
        return INVALID_COMMAND
    found = account(arguments[0])
    if found is None:
        print(f"container-executor: there is no user {arguments[0]}", file=sys.stderr)
        return INVALID_USER
    os.umask(0o027)
    return _COMMANDS[arguments[2]](found, list(arguments[3:]))


class Account(NamedTuple):
    """A user, by the list."""

    name: str
    uid: int
    gid: int


def account(user: str) -> Optional[Account]:
    """A user of the list; never root, as with the original."""
    for line in (CLUSTER / "kerberos" / "passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user and int(fields[2]) >= 1000:
            return Account(user, int(fields[2]), int(fields[3]))
    return None


def initialize(who: Account, arguments: List[str]) -> int:
    """Makes the application's folders and becomes its localizer."""
    app, container, tokens, local_dirs, log_dirs, *localizer = arguments
    places = _app_folders(who, app, local_dirs)
    _log_folders(who, app, container, log_dirs)
    _hand_over(who, Path(tokens), places[0] / Path(tokens).name, 0o600)
    os.chdir(places[0])
    # The jars may lie where only root looks; what the localizer writes is the user's.
    rights = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    user = ["--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]
    os.execvp("setpriv", ["setpriv", *user, *rights, "--", *localizer])


def launch(who: Account, arguments: List[str]) -> int:
    """Runs a container to its end, and leaves its exit code beside the file of its pid."""
    app, container, work, script, tokens, transport, *rest = arguments
    if transport == "--https":
        rest = rest[2:]
    pid_file, local_dirs, log_dirs = rest[:3]
    for place in _app_folders(who, app, local_dirs):
        _make(who, place / container, 0o2750)
    _log_folders(who, app, container, log_dirs)
    start = Path(work) / "launch_container.sh"
    _hand_over(who, Path(script), start, 0o700)
    _hand_over(who, Path(tokens), Path(work) / "container_tokens", 0o600)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _write(Path(pid_file), f"{os.getpid()}\n")
            os.chdir(work)
            os.setgroups([])
            os.setgid(who.gid)
            os.setuid(who.uid)
            os.execv(start, [str(start)])
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 128 - code if code < 0 else code
    _write(Path(f"{pid_file}.exitcode"), str(code))
    return code


def send_signal(who: Account, arguments: List[str]) -> int:
    """To the container's process group, if it is the user's."""
    pid, number = map(int, arguments)
    try:
        if os.stat(f"/proc/{pid}").st_uid != who.uid:
            return INVALID_PID
        os.killpg(pid, number)
    except (FileNotFoundError, ProcessLookupError):
        return INVALID_PID
    return 0


def delete(who: Account, arguments: List[str]) -> int:
    """A path, or below each of the folders that are given."""
    path, *bases = arguments
    for one in [Path(base, path) for base in bases] or [Path(path)]:
        # Links of a container lead elsewhere; what lies at their end is not this program's.
        inside = Path(os.path.realpath(one.parent), one.name)
        if (CLUSTER / "data") not in inside.parents:
            print(f"container-executor: not the cluster's: {one}", file=sys.stderr)
            return 1
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside, ignore_errors=True)
        else:
            inside.unlink(missing_ok=True)
    return 0


def show(who: Account, arguments: List[str]) -> int:
    """The names in a folder."""
    for name in sorted(os.listdir(arguments[0])):
        print(name)
    return 0


_COMMANDS = {"0": initialize, "1": launch, "2": send_signal, "3": delete, "5": show}


def _app_folders(who: Account, app: str, local_dirs: str) -> List[Path]:
    found = []
    for local in local_dirs.split(_SEPARATOR):
        home = Path(local) / "usercache" / who.name
        for folder, mode in (
            (home, 0o2750),
            (home / "appcache", 0o2710),
            (home / "appcache" / app, 0o2710),
        ):
            _make(who, folder, mode)
        found.append(home / "appcache" / app)
    return found


def _log_folders(who: Account, app: str, container: str, log_dirs: str) -> None:
    for logs in log_dirs.split(_SEPARATOR):
        _make(who, Path(logs) / app, 0o2750)
        _make(who, Path(logs) / app / container, 0o2750)


def _make(who: Account, folder: Path, mode: int) -> None:
    if not folder.is_dir():
        folder.mkdir()
        os.chown(folder, who.uid, os.getgid())
        folder.chmod(mode)


def _hand_over(who: Account, source: Path, target: Path, mode: int) -> None:
    """A copy that only the user can read."""
    target.unlink(missing_ok=True)
    place = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(place, "wb") as file:
        file.write(source.read_bytes())
        os.fchmod(place, mode)
        os.fchown(place, who.uid, os.getgid())


def _write(path: Path, text: str) -> None:
    """Whole or not at all for YARN, which reads it meanwhile."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_text(text)
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
