"""Run Jupyter in one container, and open it here.

    tony notebook --python_venv venv.zip --memory 8g --gpus 1
    tony notebook --attach ID

It is a job like any other: with a queue, a page and a history. It ends with this command (Ctrl-C)
unless --detach was given, and when it has been idle for --idle-timeout. The address that is printed
holds Jupyter's token: keep it to yourself. The exit code is that of tony submit; 3: the job opens
no notebook.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
from typing import TYPE_CHECKING, Optional

from tony_core.cli.interrupts import KILLED_BY, Interrupts
from tony_core.cli.options import add_login, count, port, refuse_proxy_user, seconds, use_login
from tony_core.cli.output import line, note, safe, warn
from tony_core.client.errors import UsageError
from tony_core.exit_causes import exit_code_of

if TYPE_CHECKING:
    from tony_core.job.load import JobArguments, Loaded
    from tony_core.schedulers.port import AppStatus, Scheduler

ROLE = "notebook"
MEMORY = "2g"
IDLE_S = 3600.0
# A client that is killed cannot end its job; the job's master notices by the lease. Nor can one
# whose machine sleeps, which is the usual case: its kernels are kept, but no GPU for so long.
LEASE_S = 3600.0
GPU_LEASE_S = 600.0
FIRST_LEASE_S = 300.0  # without a client so far there is no work to keep; no lease is shorter
ENABLED = "tony.notebook.enabled"
_REASONS = {**KILLED_BY, signal.SIGTERM: "killed: tony notebook was ended by SIGTERM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_argument_group("the container")
    size.add_argument("--memory", metavar="SIZE", help=f"its memory [{MEMORY}]")
    size.add_argument("--vcores", metavar="N", type=count, help="its virtual cores")
    size.add_argument("--gpus", metavar="N", type=count, help="its GPUs")
    size.add_argument("--image", metavar="NAME", help="a docker image, which has Jupyter")
    program = parser.add_argument_group("the notebook")
    program.add_argument(
        "--python_venv", "--venv", metavar="PATH", help="an environment with Jupyter"
    )
    program.add_argument("--python_binary_path", metavar="PATH", help="the Python with Jupyter")
    program.add_argument("--src_dir", metavar="PATH", help="a folder to have beside it (a copy)")
    program.add_argument(
        "--notebook-dir",
        metavar="PATH",
        help="the folder on the node that it shows and writes; without: the working folder, which"
        " is removed with the container",
    )
    program.add_argument(
        "--idle-timeout",
        metavar="TIME",
        type=seconds,
        help="end it when no kernel computes and no page is used for so long; 0: never [1h]",
    )
    program.add_argument("--shell_env", metavar="K=V", action="append", default=[])
    job = parser.add_argument_group("the job")
    job.add_argument("--conf_file", metavar="FILE", help="a job file without roles, for its keys")
    job.add_argument("--conf", metavar="K=V", action="append", default=[], help="one key")
    job.add_argument("--scheduler", metavar="NAME", help="local, yarn, or one that is installed")
    add_login(job)
    mode = parser.add_argument_group("how")
    mode.add_argument("--port", metavar="N", type=port, help="the port here [any]")
    mode.add_argument(
        "--detach", action="store_true", help="return once it is accepted, and leave it running"
    )
    mode.add_argument("--attach", metavar="ID", help="open one that runs already; Ctrl-C leaves it")


def run(args: argparse.Namespace) -> int:
    """Return 0 when it has ended by itself or was left running, as tony submit otherwise."""
    _check_options(args)
    with Interrupts("interrupted; nothing was submitted") as interrupts:
        return _attach(args, interrupts) if args.attach is not None else _submit(args, interrupts)


OF_A_NEW_JOB = (
    "memory", "vcores", "gpus", "image", "python_venv", "python_binary_path", "src_dir",
    "notebook_dir", "idle_timeout", "shell_env", "conf_file", "conf", "detach",
)  # fmt: skip


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    if args.attach is not None:
        names = [name for name in OF_A_NEW_JOB if _is_given(getattr(args, name))]
        if names:
            given = ", ".join(_spelt(name) for name in names)
            raise UsageError(f"{given}: for a new notebook; --attach opens one as it is")
    elif args.detach and args.port is not None:
        raise UsageError("--port: --detach opens nothing here; give it with --attach")


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _spelt(name: str) -> str:
    as_is = ("python_venv", "python_binary_path", "src_dir", "shell_env", "conf_file")
    return f"--{name if name in as_is else name.replace('_', '-')}"


def _listen(args: argparse.Namespace) -> socket.socket:
    """Take the port, before anything is started for it."""
    from tony_core.client.notebook import listen_here

    try:
        return listen_here(args.port or 0)
    except OSError as error:
        raise UsageError(f"--port {args.port or 0}: {os.strerror(error.errno or 0)}") from None


def _submit(args: argparse.Namespace, interrupts: Interrupts) -> int:
    from tony_core.client.cluster_login import login_variables
    from tony_core.client.submission import prepare, send
    from tony_core.schedulers import open_scheduler

    use_login(args)
    loaded = load_notebook(args)
    job = loaded.job
    refuse_proxy_user(args, job.scheduler)
    os.environ.update(login_variables(job.hadoop))
    with contextlib.ExitStack() as stack:
        sock = None if args.detach else stack.enter_context(_listen(args))
        scheduler = open_scheduler(job.scheduler)
        stack.callback(scheduler.close)
        prepared = prepare(scheduler, job)
        for problem in (*loaded.warnings, *prepared.warnings):
            warn(safe(str(problem)))
        app_id = send(scheduler, prepared, interrupts.defer)
        if sock is None:
            line(app_id)
            note(f"submitted. Open it with: tony notebook --attach {app_id}; end it with: tony"
                 f" kill {app_id}")  # fmt: skip
            return 0
        note(f"{app_id} is submitted; waiting for its notebook (Ctrl-C ends the job)")
        return _serve(sock, interrupts, scheduler, app_id, kills=True)


def _attach(args: argparse.Namespace, interrupts: Interrupts) -> int:
    from tony_core.cli.options import hinting, scheduler_of
    from tony_core.client.errors import TunnelError
    from tony_core.client.lookup import resolve

    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(_listen(args))
        scheduler = scheduler_of(args, args.attach)
        stack.callback(scheduler.close)
        with hinting(args, scheduler):
            app_id = resolve(scheduler, args.attach).app_id
        scheduler.owner_folder(app_id)  # raises where it is another user's
        state = scheduler.status(app_id).state
        if state.ended:
            raise TunnelError(f"{app_id} has ended ({state.value}): it opens no notebook")
        interrupts.defer()
        return _serve(sock, interrupts, scheduler, app_id, kills=False)


def _serve(
    sock: socket.socket,
    interrupts: Interrupts,
    scheduler: Scheduler,
    app_id: str,
    kills: bool,
) -> int:
    from tony_core.client.errors import TunnelError
    from tony_core.client.exit_codes import exit_code_of_state
    from tony_core.client.kill import kill
    from tony_core.client.notebook import Notebook
    from tony_core.protocol.reactor import Reactor
    from tony_core.schedulers import open_scheduler
    from tony_core.schedulers.port import SchedulerError

    reactor = Reactor(note)
    notebook: Optional[Notebook] = None
    status: Optional[AppStatus] = None
    try:
        notebook = Notebook(
            reactor, lambda: open_scheduler(scheduler.name), app_id, sock, line, note
        )
        interrupts.defer(notebook.stop)
        if not interrupts.received:
            status = notebook.run()
    except (TunnelError, SchedulerError) as error:
        if notebook is not None and notebook.was_open:  # its kernels may hold hours of work
            note(f"{app_id} was not ended. {_again(app_id)}")
        elif kills:
            _give_up(scheduler, app_id, error)
        raise
    finally:
        reactor.close()
    if status is not None:
        text = "\n".join(map(safe, status.diagnostics.splitlines()))
        note(f"{app_id} has ended: {status.state.value}{': ' if text else ''}{text}")
        return exit_code_of_state(status.state)
    number = interrupts.first or 2
    if kills:
        note(f"ending {app_id}")
        kill(scheduler, app_id, _REASONS.get(signal.Signals(number), "killed by its client"))
        note(f"{app_id} has ended")
    else:
        note(f"{app_id} is still running. {_again(app_id)}")
    return exit_code_of(number)


def _give_up(scheduler: Scheduler, app_id: str, error: Exception) -> None:
    """End a job that holds no work yet, and say so where that fails, too."""
    from tony_core.client.kill import kill
    from tony_core.schedulers.port import SchedulerError

    try:
        kill(scheduler, app_id, f"its client could not open it: {error}")
    except SchedulerError as reason:
        note(f"{app_id} could not be ended ({safe(str(reason))}). {_again(app_id)}")


def _again(app_id: str) -> str:
    return f"Open it again with: tony notebook --attach {app_id}; end it with: tony kill {app_id}"


def load_notebook(args: argparse.Namespace) -> Loaded:
    """The job; JobError with every problem."""
    from tony_core.client.submission import load
    from tony_core.job.problems import JobError, Problem, problem_at

    words = ["-m", "tony_notebook", f"--idle-timeout={_idle_s(args):g}"]
    if args.notebook_dir:
        words.append(f"--folder={args.notebook_dir}")
    command = " ".join(map(shlex.quote, words))
    has_file = bool(args.conf_file)
    loaded = load(_arguments(args, command), finds_job_file=has_file)
    python = loaded.job.program.python  # it stands before the command already
    has_gpus = any(role.resources.gpus for role in loaded.job.roles)
    if python is None or has_gpus:
        command = command if python is not None else f"python3 {command}"
        loaded = load(_arguments(args, command, has_gpus), finds_job_file=has_file)
    if not loaded.job.access.notebook:
        raise JobError([Problem(f"this site allows no notebooks ({ENABLED} is false)")])
    if sum(role.instances for role in loaded.job.roles) != 1:
        tasks = ", ".join(f"{role.name} ({role.instances})" for role in loaded.job.roles)
        text = f"a notebook's job has one task, and this one has {tasks}"
        raise JobError([problem_at(loaded.job, f"tony.{ROLE}.instances", text)])
    return loaded


def _idle_s(args: argparse.Namespace) -> float:
    return IDLE_S if args.idle_timeout is None else float(args.idle_timeout)


def _lease_s(idle_s: float, has_gpus: bool) -> float:
    """How long the client may be away: no longer than the notebook may be idle, but five minutes
    at least."""
    longest = GPU_LEASE_S if has_gpus else LEASE_S
    return max(FIRST_LEASE_S, min(longest, idle_s or longest))


def _arguments(args: argparse.Namespace, command: str, has_gpus: bool = False) -> JobArguments:
    from tony_core.job.load import JobArguments

    defaults = {
        "tony.application.name": "notebook",
        "tony.application.framework": "standalone",
        f"tony.{ROLE}.instances": "1",
        f"tony.{ROLE}.memory": MEMORY,
        "tony.am.retry-count": "0",  # a next session has a fresh folder and no kernels
    }
    if not args.detach:
        defaults["tony.client.lease"] = f"{_lease_s(_idle_s(args), has_gpus):g}s"
        defaults["tony.client.first-lease"] = f"{FIRST_LEASE_S:g}s"
    options = {
        f"tony.{ROLE}.memory": args.memory,
        f"tony.{ROLE}.vcores": args.vcores,
        f"tony.{ROLE}.gpus": args.gpus,
        "tony.docker.enabled": "true" if args.image else None,
        f"tony.docker.{ROLE}.image": args.image,
    }
    given = [str(pair) for pair in args.conf]
    named = {pair.partition("=")[0] for pair in given}
    pairs = [f"{k}={v}" for k, v in options.items() if v is not None and k not in named]
    return JobArguments(
        executes=command,
        src_dir=args.src_dir,
        python_venv=args.python_venv,
        python_binary_path=args.python_binary_path,
        conf_file=args.conf_file,
        conf=[*pairs, *given],
        shell_env=args.shell_env,
        scheduler=args.scheduler,
        principal=args.principal,
        keytab=args.keytab,
        defaults=defaults,
        defaults_from="tony notebook",
        defaults_yield=True,
    )
