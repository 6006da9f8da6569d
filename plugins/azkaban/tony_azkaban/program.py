"""The program that an Azkaban server starts for a job with ``type=tony``.

    python -I PLUGIN_DIR/tony/tony_azkaban_job.py

Its environment is the server's own by then (:mod:`tony_azkaban.environment`). It reads the job's
properties (JOB_PROP_FILE), submits the application that they describe, reports its progress in the
job's log, writes the outputs for the next jobs, and exits as the application ended. A signal before
the application can exist leaves nothing behind; a later one ends the application.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Dict, Mapping, Optional

from tony_core.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from tony_azkaban.site import Site

PROPERTIES = "JOB_PROP_FILE"
#: The ``env.X`` of a job that say where to submit. No other reaches this process, unlike the JVM
#: plugin's client: it would choose which files the process loads (:mod:`environment`).
OF_SUBMIT = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "TONY_HOME")


def main(home: Optional[str] = None) -> int:
    """The exit code: that of ``tony submit`` (docs/cli.md). ``home`` is the job type's folder."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with Interrupts("the job was cancelled before anything was submitted") as interrupts:
            return _run(home, interrupts)
    except BaseException as error:
        from tony_core.cli import failures

        code = failures.report_error(_with_properties(error), bool(os.environ.get("TONY_DEBUG")))
        if code is None:
            raise
        return code
    finally:
        _flush()


def _flush() -> None:
    from tony_core.cli import failures

    failures.flush()


def _with_properties(error: BaseException) -> BaseException:
    """The error; problems of the job name the properties that its author wrote."""
    from tony_core.job.problems import JobError

    if isinstance(error, JobError):
        from tony_azkaban.translation import with_properties

        return with_properties(error)
    return error


def _run(home: Optional[str], interrupts: Interrupts) -> int:
    from tony_azkaban import execution, predecessors, site, translation, users
    from tony_azkaban.attempt import Attempt
    from tony_azkaban.folder import replace_links
    from tony_azkaban.unused_properties import add_misspelled, find_misspelled, find_unused
    from tony_core.client.submission import load
    from tony_core.job.problems import JobError

    props = properties(os.environ)
    predecessors.check(props)
    settings = site.read(home)
    set_environment(props, settings)
    proxy_user = users.choose_user(props, settings)
    this = execution.read(props, os.environ, settings.server_name, settings.server_url)
    notes = replace_links(os.getcwd(), this.execid)
    try:
        loaded = load(translation.arguments(props, settings, os.getcwd()))
    except JobError as error:
        raise JobError(add_misspelled(error.problems, props)) from None
    job, warnings = translation.finish(loaded, settings, this)
    job, user_notes = users.apply_user(job, proxy_user)
    notes += map(str, [*find_misspelled(props), *find_unused(props), *warnings])
    attempt = Attempt(props, settings, this, job, interrupts)
    try:
        return attempt.run([*notes, *user_notes])
    except Exception as error:
        why = users.explain_error(proxy_user, error)
        if why:
            from tony_core.cli.output import line

            line(why)
        raise


def properties(env: Mapping[str, str]) -> Dict[str, str]:
    """The job's properties, from the file that the server wrote."""
    from tony_azkaban.java_properties import PropertiesError, load
    from tony_core.client.errors import UsageError

    path = env.get(PROPERTIES)
    if not path:
        raise UsageError(
            f"there is no {PROPERTIES}: an Azkaban server starts this program, for a job with"
            " type=tony; by hand it is: tony submit"
        )
    try:
        with open(path, "rb") as file:
            return load(file.read())
    except OSError as error:
        raise UsageError(f"the job's properties: {path}: {error.strerror}") from None
    except PropertiesError as error:
        raise UsageError(f"the job's properties: {path}:{error.line}: {error}") from None


def set_environment(props: Mapping[str, str], site: Site) -> None:
    """Set the variables of this process that say where to submit.

    The administrator's values take precedence over the job's own (``env.HADOOP_CONF_DIR``).
    """
    from tony_core.client.errors import UsageError

    for name in OF_SUBMIT:
        if props.get(f"env.{name}"):
            try:
                os.environ[name] = props[f"env.{name}"]
            except ValueError:
                raise UsageError(f"env.{name}: a variable cannot have this value") from None
    os.environ.update(site.environment)
    if site.tony_conf:
        os.environ["TONY_CONF_DIR"] = site.tony_conf
    if site.hadoop_conf:
        os.environ["HADOOP_CONF_DIR"] = site.hadoop_conf
        os.environ.pop("YARN_CONF_DIR", None)


if __name__ == "__main__":
    sys.exit(main())
