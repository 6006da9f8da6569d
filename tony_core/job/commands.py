"""The command line of a task, and its Python."""

from __future__ import annotations

import os.path
import posixpath
import re
import shlex
from typing import Optional

from tony_core.job.problems import Severity
from tony_core.job.settings import Settings, is_url

VENV_FOLDER = "venv"  # what the virtual environment is called in a task's working folder
# A first word that ends in .py, as it is or in quotes.
_SCRIPT = re.compile(r"""(?:[^\s'"$`;|&<>()]+\.py|'[^']+\.py'|"[^"$`\\]+\.py")(?=\s|$)""")


def python_of(settings: Settings) -> Optional[str]:
    """The program's Python as a task sees it: absolute, on the PATH, or inside the venv."""
    entry = settings.entry("tony.client.python-binary-path")
    python = settings.text("tony.client.python-binary-path")
    fallback = settings.text("tony.python-exec-path")
    if python is None:
        return fallback
    if is_url(python):
        settings.problem(f"{python!r} must be a path on the nodes or inside the venv", entry)
    elif ".." in python.split("/"):
        settings.problem(f"{python!r} must not lead out of the venv (..)", entry)
    elif python.startswith("/"):
        return python
    elif settings.is_set("tony.client.python-venv"):
        # bin/python inside the venv, or venv/bin/python as a task sees it: both are written.
        path = posixpath.normpath(python)
        return path if path.startswith(f"{VENV_FOLDER}/") else posixpath.join(VENV_FOLDER, path)
    elif "/" in python:
        settings.problem(
            f"{python!r} is relative, and there is no --python_venv for it to be in", entry
        )
    return python


def common_command(settings: Settings) -> Optional[str]:
    """The command of every role without one of its own, if there is one."""
    command = settings.text("tony.containers.command")
    executes = executes_command(settings)
    if command is None or executes is None:
        return command or executes
    given = settings.entry("tony.client.executes")
    winner = settings.entry("tony.containers.command")
    if given is not None and winner is not None and command != executes:
        settings.problem(
            f"not used: tony.containers.command is set ({winner.where})",
            given,
            severity=Severity.WARNING,
        )
    return command


def executes_command(settings: Settings) -> Optional[str]:
    """``--executes`` and ``--task_params`` as one command line.

    With ``--python_binary_path`` that Python runs it, as JVM TonY does. A bare script
    (``train.py --epochs 3``) needs one in any case: the task's own python3, which is the
    venv's when there is one.
    """
    executes = settings.text("tony.client.executes")
    params = settings.text("tony.client.task-params")
    if executes is None:
        if params is not None:
            entry = settings.entry("tony.client.task-params")
            settings.problem("there is no --executes for it to follow", entry)
        return None
    script = _SCRIPT.match(executes)
    bare_script = script is not None and not script[0].strip("'\"").startswith("./")
    if _is_one_file(settings, executes):
        bare_script = not executes.startswith("./")
        executes = shlex.quote(executes)
    if bare_script or settings.is_set("tony.client.python-binary-path"):
        executes = f"{shlex.quote(python_of(settings) or 'python3')} {executes}"
    return executes if params is None else f"{executes} {params}"


def _is_one_file(settings: Settings, executes: str) -> bool:
    """Whether all of it, blanks and quotes included, is the name of a script in the source
    folder: only the folder can tell ``my script.py`` from the program ``my`` and its word."""
    if not executes.endswith(".py") or _SCRIPT.fullmatch(executes) is not None:
        return False
    src = settings.text("tony.client.src-dir")
    if src is None or is_url(src) or executes.startswith("/"):
        return False
    return os.path.isfile(os.path.join(settings.absolute(src), executes))
