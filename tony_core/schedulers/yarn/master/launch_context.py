"""From the port's launch to YARN's: command, files, credentials, and what a role's image needs.

The command is constant for a job; what differs from container to container (and whatever might
be secret) is in the credentials. So are all variables; those that survive the node's script stand
in the launch context as well, where the node itself reads some (YARN_CONTAINER_RUNTIME_TYPE) and
where Python has them from its start. A launch of our own code begins ``PYTHON -I -S RUNTIME VERB``;
anything else is run by ``yarn-start exec`` with the same interpreter.

What our own process says goes to ``executor.stdout`` and ``executor.stderr``, so that ``stdout``
and ``stderr`` in a container's log folder are the program's, as on every scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence, Tuple

from tony_core.files.artifact import Kind
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.yarn.launch import Launch
from tony_core.job.spec import Docker
from tony_core.schedulers import port
from tony_core.schedulers.yarn import job_credentials, launch_script
from tony_core.schedulers.yarn.local_resources import local_files, split_links
from tony_core.schedulers.yarn.node import start

RUNTIME = "tony-runtime"
_ISOLATED = ("-I", "-S")


class LaunchError(ValueError):
    """YARN could never start this; the text says why."""


@dataclass(frozen=True)
class Contexts:
    """What the launches of one job have in common."""

    python: str = "python3"
    runtime: str = RUNTIME  # our code, as a container finds it
    images: Mapping[str, Docker] = field(default_factory=dict)  # by role
    visibility: Mapping[str, str] = field(default_factory=dict)  # of artifacts, by URI
    site: bytes = b""  # an encoded ExecutorParcel
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  # the cluster's word, not the job's
    credentials: Credentials = field(default_factory=Credentials)  # the job's: no master's token

    def launch(self, role: str, wanted: port.Launch) -> Launch:
        """Exactly what a node is told; :class:`LaunchError`."""
        for item in wanted.artifacts:
            if item.kind is Kind.FOLDER:
                raise LaunchError(f"{item.name} is a folder, and YARN brings files: {item.uri}")
        words, argv = self._command(wanted.argv)
        files, links = split_links(local_files(wanted.artifacts, self.visibility))
        told = start.pack({**self.environment, **wanted.env}, argv, links)
        secrets = {job_credentials.SECRET: wanted.secret, start.ALIAS: told}
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
        )

    def _command(self, argv: Sequence[str]) -> Tuple[Sequence[str], Sequence[str]]:
        """The words of the command, and those that travel in the credentials."""
        if tuple(argv[1:4]) == (*_ISOLATED, RUNTIME) and len(argv) > 4:
            return (argv[0], *_ISOLATED, self._main, "yarn-start", *argv[4:]), ()
        return (self.python, *_ISOLATED, self._main, "yarn-start", "exec"), tuple(argv)

    @property
    def _main(self) -> str:
        # Not the folder: Python would load five modules to find out what to run in it.
        return f"{self.runtime}/__main__.py"


def command(words: Sequence[str]) -> str:
    """As YARN takes it."""
    return launch_script.container_command(words, "executor.stdout", "executor.stderr")
