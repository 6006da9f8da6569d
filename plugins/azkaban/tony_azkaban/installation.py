"""The job type's folder in a server's plugins: put there whole, renewed, taken away.

A server that meets half a job type, or one whose class it does not find, does not start. So a
folder is made beside the plugins, looked at in every way that can be looked at from here (its
program is started, by its own interpreter), and gets its place by a rename; on an upgrade the
old one goes aside first and comes back if anything fails. A folder that ``tony azkaban install``
did not make is not touched.

An administrator's changes stay on an upgrade: ``site.properties`` and whatever was put beside
it as they are, and in the other files each value that is not the one that was written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tony_azkaban.properties import PropertiesError, line, parse
from tony_azkaban.site import FILE as SITE
from tony_core.client.errors import ClientError, UsageError
from tony_core.dataclass import dataclass
from tony_core.version import __version__

NAME = "tony"
MARK = "installed.json"
AS_USER = "execute.as.user"
LAUNCHER = "tony_azkaban_job.py"
PLUGIN, PRIVATE = "plugin.properties", "private.properties"
WRITTEN = (PLUGIN, PRIVATE)
TEMPLATES = Path(__file__).parent / "jobtypes" / NAME
CHECK = "--check"
CHECK_S = 60.0
COMMON_PRIVATE = "commonprivate.properties"
_KNOWN = ("common.properties", COMMON_PRIVATE)
_SHELL = "\"'\\$`\n\r"  # what Azkaban's splitting or substitution would take apart

_PROGRAM = '''"""Started by Azkaban for a job with type=tony; written by: tony azkaban install."""

import os
import signal
import sys


def cancelled(*signal_and_frame):
    """So early that there is nothing yet to take back."""
    os.write(2, b"tony: the job was cancelled before anything was submitted\\n")
    os._exit(143)


signal.signal(signal.SIGTERM, cancelled)
sys.path[:0] = {paths!r}

from tony_azkaban.environment import restore  # noqa: E402

restore()

from tony_azkaban.program import main  # noqa: E402

if sys.argv[1:] == ["{check}"]:
    from tony_azkaban.installation import check

    sys.exit(check())
sys.exit(main(os.path.dirname(os.path.abspath(__file__))))
'''


class InstallError(ClientError):
    """The job type could not be put there; the server is as it was."""


@dataclass(frozen=True)
class Done:
    """What was done."""

    folder: Path
    version: str
    kept: Sequence[str] = ()  # the administrator's own, where ours would differ


def install(plugins: Path, python: Optional[str], site: Mapping[str, str]) -> Done:
    """A new job type; ``site`` goes into its ``site.properties``."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    if target.exists():
        raise UsageError(
            f"{target} is there already: tony azkaban upgrade --plugin-dir {plugins} renews it"
            if _is_ours(target)
            else f"{target} is there already, and not by tony azkaban install: it stays."
            " Move it out of the plugins to have this one in its place"
        )
    with _aside(plugins) as folder:
        making = folder / NAME
        making.mkdir(mode=0o755)
        shutil.copyfile(TEMPLATES / SITE, making / SITE)
        kept = _fill(making, target, _python(python), {}, site)
        _verify(making, target, plugins)
        _put(making, target)
    return Done(target, __version__, kept)


def upgrade(plugins: Path, python: Optional[str], site: Mapping[str, str]) -> Done:
    """The same for one that is there, with what its administrator has changed."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    before = _mark(target)
    with _aside(plugins) as folder:
        making = folder / NAME
        shutil.copytree(target, making, symlinks=True)
        if not (making / SITE).exists():
            shutil.copyfile(TEMPLATES / SITE, making / SITE)
        chosen = _python(python or str(before.get("python") or ""))
        kept = _fill(making, target, chosen, before.get("written") or {}, site)
        _verify(making, target, plugins)
        old = folder / "before"
        target.rename(old)
        try:
            _put(making, target)
        except BaseException:
            old.rename(target)
            raise
    return Done(target, __version__, kept)


def remove(plugins: Path) -> Done:
    """Take it away; a server that runs goes on with what it has read."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    version = str(_mark(target).get("version") or "?")
    with _aside(plugins) as folder:
        target.rename(folder / NAME)
    return Done(target, version)


def check() -> int:
    """In the job type's own interpreter: all that a job may need can be imported."""
    for module in ("attempt", "predecessors", "translation", "users"):
        import_module(f"tony_azkaban.{module}")
    import_module("tony_core.client.loading")
    sys.stdout.write(f"{__version__}\n")
    return 0


def runs_as(plugins: Path) -> str:
    """As whom the server will start the jobs: what an administrator may want to know."""
    try:
        text = (plugins / COMMON_PRIVATE).read_bytes().decode("latin-1")
        said = {each.key: each.value for each in parse(text)}
    except (OSError, PropertiesError):
        said = {}
    if said.get(AS_USER, "").strip().lower() == "false":
        return f"jobs run as the server's own user ({AS_USER}=false in {COMMON_PRIVATE})"
    return (
        f"servers of 3.x run jobs, as those with type=command, as the users who submit them, unless"
        f" {COMMON_PRIVATE} says {AS_USER}=false; older servers as their own"
    )


# ------------------------------------------------------------------ which folder


def _plugin_dir(plugins: Path) -> Path:
    plugins = Path(os.path.abspath(plugins))
    if not plugins.is_dir():
        raise UsageError(f"{plugins} is no folder: name the server's azkaban.jobtype.plugin.dir")
    if _looks_right(plugins):
        if not os.access(plugins, os.W_OK | os.X_OK):
            raise UsageError(f"{plugins} may not be written: do it as the server's own user")
        return plugins
    for below in ("plugins/jobtypes", "jobtypes"):
        if (plugins / below).is_dir():
            raise UsageError(f"{plugins} holds no job types; {plugins / below} is meant, maybe")
    raise UsageError(
        f"{plugins} does not look like a server's job types (azkaban.jobtype.plugin.dir): it is"
        f" not called jobtypes, and has neither {_KNOWN[0]} nor a job type in it"
    )


def _looks_right(plugins: Path) -> bool:
    if (plugins / PRIVATE).exists():
        return False  # one job type
    return (
        plugins.name == "jobtypes"
        or any((plugins / name).is_file() for name in _KNOWN)
        or any((each / PRIVATE).is_file() for each in plugins.iterdir() if each.is_dir())
    )


def _is_ours(target: Path) -> bool:
    return (target / MARK).is_file()


def _mark(target: Path) -> Dict[str, Any]:
    try:
        found = json.loads((target / MARK).read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "is not there" if not target.exists() else "was not made by tony azkaban install"
        raise UsageError(f"{target} {what}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{target / MARK} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{target / MARK} is not what tony azkaban install writes")
    return found


class _aside:
    """A folder on the plugins' file system that no server takes for a job type."""

    def __init__(self, plugins: Path) -> None:
        self._plugins = plugins

    def __enter__(self) -> Path:
        above = self._plugins.parent
        same = above.stat().st_dev == self._plugins.stat().st_dev and os.access(above, os.W_OK)
        # Within the plugins it has no private.properties of its own: it is passed over.
        self._folder = tempfile.mkdtemp(
            prefix=".tony-azkaban-", dir=above if same else self._plugins
        )
        return Path(self._folder)

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _put(making: Path, target: Path) -> None:
    try:
        making.rename(target)
    except OSError as error:
        raise InstallError(f"{target} could not be put in place: {error.strerror}") from None


# ------------------------------------------------------------------ what is in it


def _fill(
    making: Path,
    target: Path,
    python: str,
    before: Mapping[str, Mapping[str, str]],
    site: Mapping[str, str],
) -> List[str]:
    """Write our files; which values of the administrator's were kept."""
    for path in (python, str(target)):
        if any(mark in path for mark in _SHELL):
            raise UsageError(f"{path!r}: Azkaban cannot start a program by such a path")
    words = [python, "-I", "-X", "utf8", str(target / LAUNCHER)]
    command = " ".join(f'"{word}"' if " " in word else word for word in words)
    written: Dict[str, Dict[str, str]] = {}
    kept: List[str] = []
    for name in WRITTEN:
        template = (TEMPLATES / name).read_text(encoding="ascii")
        values = {each.key: each.value for each in parse(template)}
        values = {
            key: text.replace("@HOME@", str(target)).replace("@COMMAND@", command)
            for key, text in values.items()
        }
        was = before.get(name) or {}
        text = template
        if (making / name).exists():
            text = (making / name).read_bytes().decode("latin-1")
            now = {each.key: each.value for each in parse(text)}
            for key, value in values.items():
                if key in now and key in was and now[key] not in (was[key], value):
                    kept.append(f"{key} in {name}")
                    values = {**values, key: now[key]}
            for key in set(was) - set(values):
                if now.get(key) == was[key]:  # ours, of an older version
                    text = without(text, key)
        for key, value in values.items():
            text = with_value(text, key, value)
        (making / name).write_bytes(text.encode("latin-1", "backslashreplace"))
        os.chmod(making / name, 0o644)
        # Of what was kept we still know what we would have written: the next time, too.
        written[name] = {key: was[key] if f"{key} in {name}" in kept else value
                         for key, value in values.items()}  # fmt: skip
    said = (making / SITE).read_bytes().decode("latin-1")
    for key, value in site.items():
        said = with_value(said, key, value)
    (making / SITE).write_bytes(said.encode("latin-1", "backslashreplace"))
    (making / LAUNCHER).write_text(
        _PROGRAM.format(paths=_paths(python), check=CHECK), encoding="utf-8"
    )
    mark = {"version": __version__, "python": python, "written": written}
    (making / MARK).write_text(json.dumps(mark, indent=1) + "\n", encoding="utf-8")
    for name in (SITE, LAUNCHER, MARK):
        os.chmod(making / name, 0o644)
    os.chmod(making, 0o755)  # noqa: S103 - the server reads it
    return kept


def with_value(text: str, key: str, value: str) -> str:
    """A properties file's text with one value changed in its place, or at its end."""
    found = [each for each in parse(text) if each.key == key]
    if not found:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{line(key, value)}\n"
    last = found[-1]
    if last.value == value:
        return text
    return f"{text[: last.start]}{line(key, value)}\n{text[last.end :]}"


def without(text: str, key: str) -> str:
    """A properties file's text without one key, and without the comment right above it."""
    for each in reversed([each for each in parse(text) if each.key == key]):
        above = text[: each.start].splitlines(keepends=True)
        while above and above[-1].startswith("#"):
            above.pop()
        text = "".join(above) + text[each.end :]
    return text


def _python(chosen: Optional[str]) -> str:
    python = chosen or sys.executable
    if not os.path.isabs(python):
        raise UsageError(f"--python {python}: say it by its absolute path")
    if not os.access(python, os.X_OK):
        raise UsageError(f"{python} is no program that can be started: say another by --python")
    return python


def _paths(python: str) -> List[str]:
    """Where our own packages are, for an interpreter in which they are not installed."""
    probe = "import tony_azkaban.program, tony_core, tony_executor, tony"
    if subprocess.run([python, "-I", "-c", probe], capture_output=True).returncode == 0:
        return []
    found: List[str] = []
    for name in ("tony_core", "tony_azkaban", "tony_executor", "tony"):
        path = import_module(name).__file__
        assert path is not None
        above = Path(path).resolve().parent
        found.append(str(above.parent if Path(path).name == "__init__.py" else above))
    return list(dict.fromkeys(found))


# ------------------------------------------------------------------ does it work?


def _verify(making: Path, target: Path, plugins: Path) -> None:
    """Whatever would hurt the server, or every job, before it is there."""
    from tony_azkaban.site import read
    from tony_core.job.problems import JobError

    for name, key in ((PLUGIN, "command"), (PRIVATE, "jobtype.class")):
        try:
            said = {each.key: each.value for each in parse((making / name).read_text("latin-1"))}
        except PropertiesError as error:
            raise InstallError(f"{target / name}:{error.line}: {error}") from None
        if not said.get(key, "").strip():
            raise InstallError(f"{target / name} has no {key}: the server would not start with it")
    try:
        read(str(making))
    except JobError as error:
        raise InstallError(str(error).replace(str(making), str(target))) from None
    python = str(_mark(making).get("python"))
    owner = plugins.stat().st_uid
    other = owner if os.geteuid() == 0 and owner != 0 else None
    words = [python, "-I", "-X", "utf8", str(making / LAUNCHER), CHECK]
    try:
        os.chmod(making.parent, 0o755)  # noqa: S103 - for that user to reach it
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=CHECK_S, user=other, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallError(f"{python} cannot run the job type's program: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InstallError(
            f"{python} cannot run the job type's program: {last}; name an interpreter that has"
            " TonY installed by --python"
        )
