"""``python -m tony_notebook``: Jupyter as the program of a task, for ``tony notebook``.

It listens at a socket in the working folder that only the task's user can open, and at no port.
Its token is made here, and stands beside the socket in a file that only that user can read: the
executor passes it to the job's owner, by the authenticated tunnel.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import secrets
import sys
from typing import List, Sequence, Tuple

FILE = "notebook.json"
SOCKET = "notebook.sock"
SERVER = "jupyterlab"
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
    here = os.getcwd()
    folder = os.path.abspath(os.path.expanduser(args.folder or here))
    if not os.path.isdir(folder):
        sys.stderr.write(f"--notebook-dir {folder} is not a folder on this node\n")
        return 2
    token = secrets.token_hex(24)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(FILE)  # one that came with the source may be a link, or open to others
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(FILE, flags, 0o600), "w") as file:
        json.dump({"socket": SOCKET, "token": token}, file)
    os.environ["JUPYTER_TOKEN"] = token
    os.environ.setdefault("JUPYTER_RUNTIME_DIR", os.path.join(here, ".jupyter-runtime"))
    command = [sys.executable, "-m", SERVER, *options(folder, args.idle_timeout)]
    sys.stdout.flush()
    return os.execv(sys.executable, command)


def options(folder: str, idle_s: float) -> List[str]:
    """Jupyter's options."""
    pairs: List[Tuple[str, object]] = [
        ("ServerApp.sock", SOCKET),
        ("ServerApp.sock_mode", "0600"),
        ("ServerApp.root_dir", folder),
        ("ServerApp.open_browser", False),
    ]
    if os.geteuid() == 0:
        pairs.append(("ServerApp.allow_root", True))
    if idle_s > 0:
        # A kernel that computes is not idle. The server ends when no kernel is left.
        idle, look = max(1, int(idle_s)), max(1, min(60, int(idle_s / 4)))
        pairs += [
            ("ServerApp.shutdown_no_activity_timeout", idle),
            ("MappingKernelManager.cull_idle_timeout", idle),
            ("MappingKernelManager.cull_interval", look),
            ("MappingKernelManager.cull_connected", True),
            ("TerminalManager.cull_inactive_timeout", idle),
            ("TerminalManager.cull_interval", look),
        ]
    return [f"--{name}={value}" for name, value in pairs]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
