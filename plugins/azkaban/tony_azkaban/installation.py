"""Installs, upgrades and removes the job type's folder in a server's plugins.

A server that finds half a job type, or one whose class is missing, does not start. So the installer
makes the folder outside of the plugins, checks it (it starts the job type's program with its own
interpreter), and renames it into place. On an upgrade it moves the old folder away first, and moves
it back if anything fails. It changes no folder that ``tony azkaban install`` did not make.

An upgrade keeps an administrator's changes: ``site.properties`` and all files added to the folder,
and in the other files each value that differs from the one that was written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from tony_azkaban.java_properties import PropertiesError, line, parse
from tony_azkaban.login import (
    COMMON_PRIVATE,
    OBTAINS_TOKENS,
    PRIVATE,
    find_service_keytabs,
    read_properties,
)
from tony_azkaban.site import FILE as SITE
from tony_azkaban.site import TOKENS, read
from tony_core.client.errors import ClientError, UsageError
from tony_core.job.problems import JobError
from tony_core.version import __version__

NAME = "tony"
RECORD = "installed.json"
AS_USER = "execute.as.user"
LAUNCHER = "tony_azkaban_job.py"
PLUGIN = "plugin.properties"
WRITTEN = (PLUGIN, PRIVATE)
TEMPLATES = Path(__file__).parent / "jobtypes" / NAME
CHECK = "--check"
CHECK_S = 60.0
#: What the class wants to find for its own login.
OF_ITS_LOGIN = ("hadoop.security.manager.class", "proxy.user", "proxy.keytab.location")
_KNOWN = ("common.properties", COMMON_PRIVATE)
_SHELL = "\"'\\$`\n\r"  # Azkaban's splitting or substitution would change these

_PROGRAM = '''"""Started by Azkaban for a job with type=tony; written by: tony azkaban install."""

import os
import signal
import sys


def cancelled(*signal_and_frame):
    """Exit at once: nothing has been submitted yet."""
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
    """The job type could not be installed; the server is unchanged."""


class Done(NamedTuple):
    """The result for the command line."""

    folder: Path
    version: str
    kept: Sequence[str] = ()  # the administrator's own values


def install(plugins: Path, python: Optional[str], site: Mapping[str, str]) -> Done:
    """Install a new job type; ``site`` goes into its ``site.properties``."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    if target.exists():
        raise UsageError(
            f"{target} is there already: tony azkaban upgrade --plugin-dir {plugins} renews it"
            if _is_ours(target)
            else f"{target} is there already, and not by tony azkaban install: it stays."
            " Move it out of the plugins to have this one in its place"
        )
    with _scratch_folder(plugins) as folder:
        making = folder / NAME
        making.mkdir(mode=0o755)
        shutil.copyfile(TEMPLATES / SITE, making / SITE)
        kept = _fill(making, target, _python(python), {}, site)
        _verify(making, target, plugins)
        _put(making, target)
    return Done(target, __version__, kept)


def upgrade(plugins: Path, python: Optional[str], site: Mapping[str, str]) -> Done:
    """Upgrade the job type, and keep its administrator's changes."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    before = _record(target)
    with _scratch_folder(plugins) as folder:
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
    """Remove the job type; a running server keeps what it has read."""
    plugins = _plugin_dir(plugins)
    target = plugins / NAME
    version = str(_record(target).get("version") or "?")
    with _scratch_folder(plugins) as folder:
        target.rename(folder / NAME)
    return Done(target, version)


def check() -> int:
    """Import all that a job may need, in the job type's own interpreter."""
    for module in ("attempt", "predecessors", "job_properties", "users"):
        import_module(f"tony_azkaban.{module}")
    import_module("tony_core.client.submission")
    sys.stdout.write(f"{__version__}\n")
    return 0


def find_notes(folder: Path) -> List[str]:
    """Lines for the administrator: as which user jobs will run on this machine, and their login."""
    common = read_properties(folder.parent / COMMON_PRIVATE)
    own = read_properties(folder / PRIVATE)
    as_server = {**common, **own}.get(AS_USER, "").strip().lower() == "false"
    if as_server:
        notes = [f"jobs run as the server's own user ({AS_USER}=false in {COMMON_PRIVATE})"]
    else:
        notes = [
            f"servers of 3.x run jobs, as those with type=command, as the users who submit them,"
            f" unless {COMMON_PRIVATE} says {AS_USER}=false; older servers as their own"
        ]
    if own.get("jobtype.class") == OBTAINS_TOKENS["jobtype.class"]:
        missing = [name for name in OF_ITS_LOGIN if not {**common, **own}.get(name)]
        if missing:
            notes.append(
                f"the server obtains tokens by its own plugin, which wants {', '.join(missing)} in"
                f" {COMMON_PRIVATE}"
            )
        notes.append(
            "set proxy.user.lock.down=true in the executor's azkaban.properties: without it a"
            " server lets each user name any other in user.to.proxy"
        )
    for keytab in find_service_keytabs(str(folder)):
        if as_server or _is_open(keytab):
            notes.append(
                f"warning: jobs can read the server's keytab {keytab}: on a cluster with Kerberos"
                f" they are refused, unless {SITE} says readable.keytab=accept (docs/azkaban.md)"
            )
    return notes


def _is_open(path: str) -> bool:
    """Whether every user of this machine may read the file, as far as its own mode says."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False


# ------------------------------------------------------------------ which folder


def _plugin_dir(plugins: Path) -> Path:
    plugins = Path(os.path.abspath(plugins))
    if not plugins.is_dir():
        raise UsageError(f"{plugins} is not a folder: name the server's azkaban.jobtype.plugin.dir")
    if _looks_right(plugins):
        if not os.access(plugins, os.W_OK | os.X_OK):
            raise UsageError(f"{plugins} is not writable: run this as the server's own user")
        return plugins
    for below in ("plugins/jobtypes", "jobtypes"):
        if (plugins / below).is_dir():
            raise UsageError(f"{plugins} has no job types (did you mean {plugins / below}?)")
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
    return (target / RECORD).is_file()


def _record(target: Path) -> Dict[str, Any]:
    try:
        found = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "is not there" if not target.exists() else "was not made by tony azkaban install"
        raise UsageError(f"{target} {what}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{target / RECORD} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{target / RECORD} is not what tony azkaban install writes")
    return found


@contextmanager
def _scratch_folder(plugins: Path) -> Iterator[Path]:
    """A temporary folder on the plugins' file system, which no server takes for a job type."""
    above = plugins.parent
    same = above.stat().st_dev == plugins.stat().st_dev and os.access(above, os.W_OK)
    # Within the plugins a server skips it: it has no private.properties of its own.
    folder = tempfile.mkdtemp(prefix=".tony-azkaban-", dir=above if same else plugins)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    """Write the job type's files; the names of the administrator's values that were kept."""
    for path in (python, str(target)):
        if any(mark in path for mark in _SHELL):
            raise UsageError(f"{path!r}: Azkaban cannot start a program with such a path")
    words = [python, "-I", "-X", "utf8", str(target / LAUNCHER)]
    command = " ".join(f'"{word}"' if " " in word else word for word in words)
    _write_site(making, site)
    obtains = OBTAINS_TOKENS if _takes_tokens(making) else {}
    written: Dict[str, Dict[str, str]] = {}
    kept: List[str] = []
    for name in WRITTEN:
        template = (TEMPLATES / name).read_text(encoding="ascii")
        values = {each.key: each.value for each in parse(template)}
        values = {
            key: text.replace("@HOME@", str(target)).replace("@COMMAND@", command)
            for key, text in values.items()
        }
        if name == PRIVATE:
            values.update(obtains)
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
        # For a value that was kept, record the one written before: for the next upgrade.
        written[name] = {key: was[key] if f"{key} in {name}" in kept else value
                         for key, value in values.items()}  # fmt: skip
    (making / LAUNCHER).write_text(
        _PROGRAM.format(paths=_paths(python), check=CHECK), encoding="utf-8"
    )
    record = {"version": __version__, "python": python, "written": written}
    (making / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in (SITE, LAUNCHER, RECORD):
        os.chmod(making / name, 0o644)
    os.chmod(making, 0o755)  # noqa: S103 - the server reads it
    return kept


def _write_site(making: Path, site: Mapping[str, str]) -> None:
    text = (making / SITE).read_bytes().decode("latin-1")
    for key, value in site.items():
        text = with_value(text, key, value)
    (making / SITE).write_bytes(text.encode("latin-1", "backslashreplace"))


def _takes_tokens(making: Path) -> bool:
    try:
        return read(str(making)).login == TOKENS
    except JobError:
        return False  # the check before it is put in place refuses it


def with_value(text: str, key: str, value: str) -> str:
    """A properties file's text with one value changed in place, or added at its end."""
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
        raise UsageError(f"--python {python}: expected an absolute path")
    if not os.access(python, os.X_OK):
        raise UsageError(f"{python} is not executable: name another interpreter with --python")
    return python


def _paths(python: str) -> List[str]:
    """The folders of TonY's packages, for an interpreter in which they are not installed."""
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


# ------------------------------------------------------------------ checks


def _verify(making: Path, target: Path, plugins: Path) -> None:
    """Refuse, before it is in place, a job type that would break the server or every job."""
    for name, key in ((PLUGIN, "command"), (PRIVATE, "jobtype.class")):
        try:
            values = {each.key: each.value for each in parse((making / name).read_text("latin-1"))}
        except PropertiesError as error:
            raise InstallError(f"{target / name}:{error.line}: {error}") from None
        if not values.get(key, "").strip():
            raise InstallError(f"{target / name} has no {key}: the server would not start with it")
    try:
        read(str(making))
    except JobError as error:
        raise InstallError(str(error).replace(str(making), str(target))) from None
    python = str(_record(making).get("python"))
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
