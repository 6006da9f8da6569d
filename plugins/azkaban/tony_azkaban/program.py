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
from typing import Dict, Mapping, Optional

from tony_azkaban import execution, job_properties, login, predecessors, site, users
from tony_azkaban.attempt import Attempt
from tony_azkaban.folder import replace_links
from tony_azkaban.java_properties import PropertiesError
from tony_azkaban.java_properties import load as load_properties
from tony_core.cli import errors
from tony_core.cli.interrupts import Interrupts
from tony_core.cli.output import line
from tony_core.client.errors import UsageError
from tony_core.client.submission import load
from tony_core.job.problems import JobError

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
        if isinstance(error, JobError):
            error = job_properties.with_properties(error)
        code = errors.report_error(error, bool(os.environ.get("TONY_DEBUG")))
        if code is None:
            raise
        return code
    finally:
        errors.flush()


def _run(home: Optional[str], interrupts: Interrupts) -> int:
    props = properties(os.environ)
    predecessors.check(props)
    settings = site.read(home)
    set_environment(props, settings)
    props, login_found = login.take_login(props, settings, os.environ)
    proxy_user = users.choose_user(props, settings)
    this = execution.read(props, os.environ, settings.server_name, settings.server_url)
    notes = replace_links(os.getcwd(), this.execid)
    try:
        loaded = load(job_properties.arguments(props, settings, os.getcwd()))
    except JobError as error:
        raise JobError(job_properties.add_misspelled(error.problems, props)) from None
    job, warnings = job_properties.finish(loaded, settings, this)
    warnings += login.check_login(job, props, settings, login_found, home)
    job, user_notes = users.apply_user(job, proxy_user, settings)
    notes += map(
        str, [*job_properties.find_misspelled(props), *job_properties.find_unused(props), *warnings]
    )
    attempt = Attempt(props, settings, this, job, interrupts)
    try:
        return attempt.run([*notes, *user_notes])
    except Exception as error:
        for why in (
            users.explain_error(proxy_user, error),
            login.explain_error(settings, error),
        ):
            if why:
                line(why)
        raise


def properties(env: Mapping[str, str]) -> Dict[str, str]:
    """The job's properties, from the file that the server wrote."""
    path = env.get(PROPERTIES)
    if not path:
        raise UsageError(
            f"there is no {PROPERTIES}: an Azkaban server starts this program, for a job with"
            " type=tony; by hand it is: tony submit"
        )
    try:
        with open(path, "rb") as file:
            return load_properties(file.read())
    except OSError as error:
        raise UsageError(f"the job's properties: {path}: {error.strerror}") from None
    except PropertiesError as error:
        raise UsageError(f"the job's properties: {path}:{error.line}: {error}") from None


def set_environment(props: Mapping[str, str], settings: site.Site) -> None:
    """Set the variables of this process that say where to submit.

    The administrator's values take precedence over the job's own (``env.HADOOP_CONF_DIR``).
    """
    for name in OF_SUBMIT:
        if props.get(f"env.{name}"):
            try:
                os.environ[name] = props[f"env.{name}"]
            except ValueError:
                raise UsageError(f"env.{name}: a variable cannot have this value") from None
    os.environ.update(settings.environment)
    if settings.tony_conf:
        os.environ["TONY_CONF_DIR"] = settings.tony_conf
    if settings.hadoop_conf:
        os.environ["HADOOP_CONF_DIR"] = settings.hadoop_conf
        os.environ.pop("YARN_CONF_DIR", None)


if __name__ == "__main__":
    sys.exit(main())
