"""The command line of bin/hadoop-sandbox: a Hadoop on this machine, to try things on."""

from __future__ import annotations

import argparse
import fcntl
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, Optional

from tests.cluster.hadoop import native
from tests.cluster.hadoop.classes import share
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.features import NAMES
from tests.cluster.hadoop.jars import VERSIONS, SandboxError, cache_root, distribution
from tests.cluster.hadoop.plan import FEATURES
from tests.cluster.hadoop.security import EVERYONE

_CHANGES = {"start": Hadoop.start, "stop": Hadoop.stop, "kill": Hadoop.kill}


def main(arguments: Optional[List[str]] = None) -> int:
    """0 when done, 1 when it cannot be, 2 for a call that makes no sense."""
    options = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], None] = options.run
    try:
        verb(options)
    except SandboxError as error:
        print(f"hadoop-sandbox: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hadoop-sandbox", description="HDFS and YARN on this machine, for tests and to try."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=cache_root() / "hadoop-sandbox",
        help="where the cluster's configuration, data and logs are (default: %(default)s)",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=run.__doc__, description=run.__doc__)
        one.set_defaults(run=run, verb=name)
        return one

    up = verb("up", _up)
    up.add_argument("--version", default=VERSIONS[0], help=f"of Hadoop: {', '.join(VERSIONS)}")
    up.add_argument("--secure", action="store_true", help="with Kerberos: the feature secure")
    up.add_argument("features", nargs="*", metavar="FEATURE", help="see `features`")
    verb("down", _down)
    verb("status", _status)
    verb("env", _env).add_argument("--user", help=f"on a secure cluster: {', '.join(EVERYONE)}")
    verb("features", _features)
    for name in (*_CHANGES, "restart"):
        verb(name, _change).add_argument("daemon", help="as in `status`: nn0, dn0, rm0, nm0, ...")
    verb("logs", _logs).add_argument("application", metavar="APPLICATION_ID")
    fetch = verb("fetch", _fetch)
    fetch.add_argument("versions", nargs="*", metavar="VERSION", default=[VERSIONS[0]])
    return parser


def _up(options: argparse.Namespace) -> None:
    """Starts a new cluster, and prints the settings of its clients, as `env` does."""
    folder: Path = options.folder.absolute()
    started = time.monotonic()
    with _locked(folder):
        if (folder / "cluster.json").exists():
            cluster = Hadoop(folder)
            try:
                cluster.daemons()
            except SandboxError:
                cluster.remove()  # of a machine that was switched off, say
            else:
                raise SandboxError(f"a cluster is up in {folder}; `down` ends it")
        elif folder.exists() and any(folder.iterdir()):
            raise SandboxError(f"{folder} has other things in it; name another by --folder")
        jars = distribution(options.version)
        features = [*options.features, *(["secure"] if options.secure else ())]
        cluster = Hadoop.up(folder, features, jars=jars, detached=True)
    print(f"hadoop-sandbox: up in {time.monotonic() - started:.0f} s", file=sys.stderr)
    _print_environment(cluster.client_environment)
    if cluster.is_secure:
        print(
            f"hadoop-sandbox: you are {cluster.user}, with a ticket. To become another user:"
            ' eval "$(bin/hadoop-sandbox env --user bob)"',
            file=sys.stderr,
        )


def _down(options: argparse.Namespace) -> None:
    """Ends the cluster, and removes it with all that is in its file system."""
    Hadoop(options.folder.absolute()).remove()


def _status(options: argparse.Namespace) -> None:
    """Daemons with pid, memory and addresses; applications that run."""
    cluster = Hadoop(options.folder.absolute())
    memory = cluster.memory_mb()
    print(f"Hadoop {cluster.version} in {cluster.folder}")
    print(f"features: {' '.join(cluster.features) or 'none'}")
    for name, state in cluster.daemons().items():
        if name in memory:
            what = f"pid {state['pid']}, {memory[name]} MB"
        else:
            what = "stopped" if state["pid"] is None else f"ended with {state['exit']}"
        web = f"  {cluster.url(name)}" if cluster.web(name) else ""
        print(f"  {name:4} {what:20} {cluster.rpc(name)}{web}")
    for app in cluster.applications("SUBMITTED,ACCEPTED,RUNNING"):
        print(f"  {app['id']} {app['state']} {app['name']}")


def _env(options: argparse.Namespace) -> None:
    """Prints the settings of a client (HADOOP_CONF_DIR, ...), for a shell to evaluate; on a secure
    cluster it gets a new ticket."""
    cluster = Hadoop(options.folder.absolute())
    if not cluster.is_secure:
        if options.user:
            raise SandboxError("only a secure cluster has users; name yours by HADOOP_USER_NAME")
        _print_environment(cluster.client_environment)
        return
    user = options.user or cluster.user
    if user not in cluster.users:
        raise SandboxError(f"there is no user {user!r}; there are: {', '.join(cluster.users)}")
    cluster.kinit(user)
    _print_environment(cluster.environment_of(user))


def _print_environment(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        print(f"export {name}={shlex.quote(value)}")


def _features(options: argparse.Namespace) -> None:
    """Lists what a cluster can be asked to have."""
    for feature in map(FEATURES.__getitem__, NAMES):
        needs = f" (brings {', '.join(feature.needs)})" if feature.needs else ""
        print(f"{feature.name:16} {feature.text}{needs}")


def _change(options: argparse.Namespace) -> None:
    """Starts, stops, kills (like a power cut) or restarts one daemon."""
    cluster = Hadoop(options.folder.absolute())
    for step in ("stop", "start") if options.verb == "restart" else (options.verb,):
        _CHANGES[step](cluster, options.daemon)
    if options.verb in ("start", "restart"):
        cluster.wait_ready()


def _logs(options: argparse.Namespace) -> None:
    """Prints what an application's containers wrote."""
    print(Hadoop(options.folder.absolute()).application_logs(options.application))


def _fetch(options: argparse.Namespace) -> None:
    """Fetches the jars, so that `up` needs no network, and makes it quick."""
    for version in options.versions:
        jars = distribution(version)
        try:
            share(jars)
        except SandboxError as error:
            print(f"hadoop-sandbox: daemons will start more slowly: {error}", file=sys.stderr)
        try:
            native.fetch(jars)
        except SandboxError as error:
            print(f"hadoop-sandbox: no cluster can be secure: {error}", file=sys.stderr)
        print(jars.folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One `up` at a time in a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
