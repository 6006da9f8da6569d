"""``python -m tony_notebook``: Jupyter as the program of a task, for ``tony notebook``.

It listens at a socket in the working folder that only the task's user can open, and at no port.
Nor do its kernels: at a port of the loopback each user of the node could read what they publish,
the cells and their output (a kernel's key signs messages; it neither hides them nor asks who
reads). Their sockets and keys, and the files in which Jupyter keeps its token, are in a folder that
only the task's user can open. It is in a temporary folder, since a socket's path must be short, and
is removed at the end.

Its token is made here, and stands beside the socket in a file that only that user can read: the
executor passes it to the job's owner, by the authenticated tunnel.

The user's own configuration of Jupyter applies, but for how the server is reached: options of the
command line override every configuration file. Jupyter runs in this process, which gives it that
command line in memory: the real one, which other users of the node can read, has no token.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import runpy
import secrets
import shutil
import signal
import sys
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from typing import List, Sequence, Tuple

FILE = "notebook.json"
SOCKET = "notebook.sock"
SERVER = "jupyterlab"
IDENTITY = "jupyter_server.auth.identity.PasswordIdentityProvider"  # Jupyter's default
# The default classes with these settings. In Jupyter's configuration the section of a class beats
# that of its base, also where a file has the one and the command line the other: all are named.
PROVIDERS = ("IdentityProvider", "PasswordIdentityProvider", "LegacyIdentityProvider")
KERNEL_MANAGERS = (
    "KernelManager",
    "AsyncKernelManager",
    "IOLoopKernelManager",
    "AsyncIOLoopKernelManager",
    "ServerKernelManager",
)
KERNEL_MAPS = ("MappingKernelManager", "AsyncMappingKernelManager")
LONGEST_SOCKET = 107  # bytes of a path, of the kernel's
KERNEL_SOCKET = "kernel-00000000-0000-0000-0000-000000000000-ipc-000"  # as Jupyter names it
NO_ROOM = """\
no temporary folder of this node can hold the sockets of Jupyter's kernels ({tried}): TMPDIR must
name a folder that can be written, with a path of {longest} bytes at most
"""
MISSING = """\
this Python has no JupyterLab: {python}
install it where the notebook runs: `pip install jupyterlab` in the environment that --python_venv
names, or in the image; or name another Python with --python_binary_path
"""


def main(argv: Sequence[str]) -> int:
    """Become Jupyter; returns an exit code only where that cannot be."""
    parser = argparse.ArgumentParser(prog="tony_notebook")
    parser.add_argument("--folder", default="")
    parser.add_argument("--idle-timeout", type=float, default=0.0)
    args = parser.parse_args(argv)
    if importlib.util.find_spec(SERVER) is None:
        sys.stderr.write(MISSING.format(python=sys.executable))
        return 2
    folder = os.path.abspath(os.path.expanduser(args.folder or os.getcwd()))
    if not os.path.isdir(folder):
        sys.stderr.write(f"--notebook-dir {folder} is not a folder on this node\n")
        return 2
    for name in (FILE, SOCKET):  # what came with the source may be a link, or open to others
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # until Jupyter's own
    try:
        runtime = make_runtime_folder()
    except OSError as error:
        sys.stderr.write(str(error))
        return 2
    try:
        return _become_jupyter(folder, args.idle_timeout, runtime)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


def make_runtime_folder() -> str:
    """Make the folder for what reaches the kernels; OSError where there is no place for it."""
    room = LONGEST_SOCKET - len(f"/{KERNEL_SOCKET}")
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108
    tried = []
    for place in dict.fromkeys(map(os.path.abspath, places)):
        if len(os.fsencode(place)) + len("/tony-00000000") > room:
            tried.append(f"{place}: too long")
            continue
        try:
            return tempfile.mkdtemp(prefix="tony-", dir=place)  # of mode 0700
        except OSError as error:
            tried.append(f"{place}: {error.strerror}")
    longest = room - len("/tony-00000000")
    raise OSError(NO_ROOM.format(tried="; ".join(tried), longest=longest))


def _become_jupyter(folder: str, idle_timeout_s: float, runtime: str) -> int:
    token = secrets.token_hex(24)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(FILE, flags, 0o600), "w") as file:
        json.dump({"socket": SOCKET, "token": token}, file)
    os.environ["JUPYTER_RUNTIME_DIR"] = runtime
    sys.argv = [SERVER, *options(folder, idle_timeout_s, token)]
    try:
        runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    if 0 < idle_timeout_s <= idle_s():
        _report_idle_end(idle_timeout_s)
    return 0


def idle_s() -> float:
    """For how long Jupyter has been idle, by its own account; 0 where it gives none."""
    try:
        server = sys.modules["jupyter_server.serverapp"].ServerApp
        newest = server.instance().web_app.last_activity()
        return float((datetime.now(timezone.utc) - newest).total_seconds())
    except Exception:  # other versions may keep no account, or another one
        return 0.0


def _report_idle_end(timeout_s: float) -> None:
    """Say why it ended in the log, and as the job's result, which its message quotes."""
    import tony

    text = f"idle: no kernel computed and no page was used for {timeout_s:g} s (--idle-timeout)"
    sys.stderr.write(f"the notebook has ended: {text}\n")
    tony.result(text)


def options(folder: str, idle_s: float, token: str) -> List[str]:
    """Jupyter's options."""
    pairs: List[Tuple[str, object]] = [
        ("ServerApp.sock", SOCKET),
        ("ServerApp.sock_mode", "0600"),
        ("ServerApp.root_dir", folder),
        ("ServerApp.open_browser", False),
        *((f"{name}.transport", "ipc") for name in KERNEL_MANAGERS),
        # What a configuration file may say against the socket, the token and the address:
        ("ServerApp.ip", "localhost"),
        ("ServerApp.port", 8888),  # the default, which alone goes together with a socket
        ("ServerApp.allow_remote_access", False),
        ("ServerApp.base_url", "/"),
        ("ServerApp.certfile", ""),
        ("ServerApp.keyfile", ""),
        ("ServerApp.client_ca", ""),
        ("ServerApp.autoreload", False),  # which would start it anew, by its command line
        # At DEBUG the options are logged, and with them the token.
        ("ServerApp.log_level", "INFO"),
        ("LabApp.log_level", "INFO"),
    ]
    if _is_before_2():
        pairs += [
            ("ServerApp.token", token),
            ("ServerApp.password", ""),
            ("ServerApp.password_required", False),
        ]
    else:
        pairs.append(("ServerApp.identity_provider_class", IDENTITY))
        pairs += [(f"{name}.token", token) for name in PROVIDERS]
        for name in PROVIDERS[1:]:
            pairs += [(f"{name}.hashed_password", ""), (f"{name}.password_required", False)]
    if os.geteuid() == 0:
        pairs.append(("ServerApp.allow_root", True))
    if idle_s > 0:
        # A kernel that computes is not idle. The server ends when no kernel is left.
        idle, look = max(1, int(idle_s)), max(1, min(60, int(idle_s / 4)))
        pairs += [
            ("ServerApp.shutdown_no_activity_timeout", idle),
            ("TerminalManager.cull_inactive_timeout", idle),
            ("TerminalManager.cull_interval", look),
        ]
        for name in KERNEL_MAPS:
            pairs += [
                (f"{name}.cull_idle_timeout", idle),
                (f"{name}.cull_interval", look),
                (f"{name}.cull_connected", True),
            ]
    return [f"--{name}={value}" for name, value in pairs]


def _is_before_2() -> bool:
    """Whether it is a Jupyter Server with older names of its options (of JupyterLab 3)."""
    try:
        return metadata.version("jupyter_server").startswith("1.")
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
