"""The command line of bin/azkaban-sandbox: an Azkaban server on this machine, to try things on."""

from __future__ import annotations

import argparse
import fcntl
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from dags.examples.azkaban.upload import ENDED, AzkabanError, Server, pack
from tests.cluster.azkaban.installing import CHECKOUT, installer
from tests.cluster.azkaban.jars import server_jars
from tests.cluster.azkaban.server import NAME, PASSWORD, USER, Azkaban
from tests.cluster.hadoop.jars import SandboxError, cache_root

FIRST = CHECKOUT / "dags" / "examples" / "azkaban" / "first"
FLOW, JOB = "summary", "first-training"
FIRST_S = 300.0


def main(arguments: Optional[List[str]] = None) -> int:
    """0 when done, 1 when it cannot be, 2 for a call that makes no sense."""
    options = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], None] = options.run
    try:
        verb(options)
    except (SandboxError, AzkabanError) as error:
        print(f"azkaban-sandbox: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="azkaban-sandbox",
        description="An Azkaban server with type=tony on this machine, for tests and to try.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=cache_root() / "azkaban-sandbox",
        help="where the server's configuration, data and logs are (default: %(default)s)",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=run.__doc__, description=run.__doc__)
        one.set_defaults(run=run)
        return one

    up = verb("up", _up)
    up.add_argument(
        "--hadoop-conf-dir",
        type=Path,
        metavar="FOLDER",
        help="of the cluster to run jobs on (default: on this machine, without one)",
    )
    up.add_argument("--empty", action="store_true", help="without the first flow")
    verb("down", _down)
    verb("status", _status)
    verb("restart", _restart)
    verb("fetch", _fetch)
    return parser


def _up(options: argparse.Namespace) -> None:
    """Starts a server with the job type in it, runs a first flow, prints the page's address."""
    folder: Path = options.folder.absolute()
    started = time.monotonic()
    with _locked(folder):
        if (folder / "cluster.json").exists():
            server = Azkaban(folder)
            try:
                server.daemons()
            except SandboxError:
                server.remove()  # of a machine that was switched off, say
            else:
                raise SandboxError(f"a server is up in {folder}; `down` ends it")
        elif folder.exists() and any(folder.iterdir()):
            raise SandboxError(f"{folder} has other things in it; name another by --folder")
        conf: Optional[Path] = options.hadoop_conf_dir
        install = installer(conf.absolute() if conf else None)
        server = Azkaban.up(folder, install, jars=server_jars(), detached=True)
    print(f"azkaban-sandbox: up in {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(f"Azkaban:   {server.url}/   (user {USER}, password {PASSWORD})")
    print(f"job type:  {server.plugins / 'tony'}")
    if not options.empty:
        _first(server.client())


def _first(client: Server) -> None:
    """The flow that a newcomer is shown."""
    client.create("first", "A first distributed training, and a job that uses its result")
    client.upload("first", pack([FIRST]))
    execid = client.run("first", FLOW)
    print(f"its flow:  {client.url}/executor?execid={execid}", flush=True)
    print(f"its log:   {client.job_page(execid, JOB)}", flush=True)
    deadline = time.monotonic() + FIRST_S
    while client.state(execid) not in ENDED:
        if time.monotonic() > deadline:
            raise SandboxError(f"the first flow has not ended within {FIRST_S:g} s")
        time.sleep(0.2)
    state = client.state(execid)
    if state != "SUCCEEDED":
        log = "\n".join(client.log(execid, JOB).splitlines()[-20:])
        raise SandboxError(f"the first flow ended as {state}:\n{log}")
    print(f"it ended:  {state}; bin/azkaban-sandbox down removes all of it")


def _down(options: argparse.Namespace) -> None:
    """Ends the server and the jobs it has started, and removes it."""
    Azkaban(options.folder.absolute()).remove()


def _status(options: argparse.Namespace) -> None:
    """The server with pid, memory and address; its job types; what runs."""
    server = Azkaban(options.folder.absolute())
    memory = server.memory_mb()
    state = server.daemons()[NAME]
    if NAME in memory:
        print(f"Azkaban in {server.folder}: pid {state['pid']}, {memory[NAME]} MB, {server.url}")
    else:
        print(f"Azkaban in {server.folder}: not running (exit code {state['exit']})")
    types = sorted(place.name for place in server.plugins.iterdir() if place.is_dir())
    print(f"  job types: {', '.join(types) or 'none'}")
    executions = server.home / "executions"
    print(f"  executions: {len(list(executions.iterdir()))} in {executions}")


def _restart(options: argparse.Namespace) -> None:
    """Restarts the server, as after a change of its job types; jobs that run go on."""
    Azkaban(options.folder.absolute()).restart()


def _fetch(options: argparse.Namespace) -> None:
    """Fetches the jars, so that `up` needs no network."""
    print(server_jars().folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One `up` at a time in a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
