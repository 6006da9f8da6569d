"""Turns the port's launches into YARN's: command, files, credentials, and a role's image.

The command is constant for a job. What differs between containers, and everything that might be
secret, is in the credentials. So are all variables; those that survive the node's launch script
are in the launch context as well, where YARN itself reads some (YARN_CONTAINER_RUNTIME_TYPE) and
Python has them from its start. A launch of TonY's own code begins ``PYTHON -I -S RUNTIME VERB``;
``yarn-start exec`` runs anything else, with the same interpreter.

The output of TonY's own process goes to ``executor.stdout`` and ``executor.stderr``, so that
``stdout`` and ``stderr`` in a container's log folder are the program's, as on every scheduler.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence, Tuple

from tony_core.files.artifact import Kind
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.yarn.launch import Launch
from tony_core.job.spec import Docker
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn import job_credentials, launch_script
from tony_core.schedulers.yarn.local_resources import local_files, split_links
from tony_core.schedulers.yarn.node import start

RUNTIME = "tony-runtime"
_ISOLATED = ("-I", "-S")


class LaunchError(ValueError):
    """YARN could never start this container; the text says why."""


class LaunchContexts(NamedTuple):
    """Builds the launch contexts of one job's containers."""

    python: str = "python3"
    runtime: str = RUNTIME  # TonY's own code, by its name in a container
    images: Mapping[str, Docker] = {}  # by role
    visibility: Mapping[str, str] = {}  # of artifacts, by URI
    site: bytes = b""  # encoded ExecutorCredentials
    environment: Mapping[str, str] = {}  # set by the cluster, not by the job
    credentials: Credentials = Credentials()  # the tokens of its user, without the master's
    view_acl: str = ""  # a node that runs no master learns them of no one else
    modify_acl: str = ""

    def launch(self, role: str, wanted: container_pool.Launch) -> Launch:
        """The launch for a node; raises :class:`LaunchError`."""
        for item in wanted.artifacts:
            if item.kind is Kind.FOLDER:
                raise LaunchError(
                    f"{item.name} is a folder, and YARN localizes only files: {item.uri}"
                )
        words, argv = self._command(wanted.argv)
        files, links = split_links(local_files(wanted.artifacts, self.visibility))
        packed = start.pack({**self.environment, **wanted.env}, argv, links)
        secrets = {job_credentials.SECRET: wanted.secret, start.ALIAS: packed}
        if self.site:
            secrets[job_credentials.SITE] = self.site
        return Launch(
            command=(command(words),),
            environment={
                **launch_script.select_plain_variables(wanted.env),
                **launch_script.docker_environment(self.images.get(role)),
            },
            files=files,
            credentials=Credentials(
                self.credentials.tokens, {**self.credentials.secrets, **secrets}
            ),
            view_acl=self.view_acl,
            modify_acl=self.modify_acl,
        )

    def _command(self, argv: Sequence[str]) -> Tuple[Sequence[str], Sequence[str]]:
        """The command, and the argument list that travels in the credentials."""
        if tuple(argv[1:4]) == (*_ISOLATED, RUNTIME) and len(argv) > 4:
            return (argv[0], *_ISOLATED, self._main, "yarn-start", *argv[4:]), ()
        return (self.python, *_ISOLATED, self._main, "yarn-start", "exec"), tuple(argv)

    @property
    def _main(self) -> str:
        # Given the folder, Python would load five modules to find its __main__.
        return f"{self.runtime}/__main__.py"


def command(words: Sequence[str]) -> str:
    """The command of a container of TonY's own code."""
    return launch_script.container_command(words, "executor.stdout", "executor.stderr")
