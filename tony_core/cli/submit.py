"""Start a job and watch it to its end.

The exit code says how it ended: 0 succeeded, 1 failed, 2 bad job or command line, 3 the
scheduler could not be reached or refused, 4 timed out, 130 interrupted, 143 terminated (the
job is killed unless detached), 137 killed by another client.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Optional

from tony_core.cli.interrupts import Interrupts
from tony_core.cli.options import add_login, refuse_proxy_user, use_login
from tony_core.cli.output import application_data, line, note, print_json, warn
from tony_core.cli.parser import Parser

if TYPE_CHECKING:
    from tony_core.job.load import JobArguments
    from tony_core.schedulers.port import LifetimeLimit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options; those of several parts may be spelt with _ or -."""
    program = parser.add_argument_group("the program")
    program.add_argument("--executes", metavar="COMMAND", help="what every task runs")
    program.add_argument("--task_params", metavar="WORDS", help="more arguments for that command")
    program.add_argument("--src_dir", metavar="PATH", help="its source: a folder, zip or tar")
    program.add_argument(
        "--python_venv", metavar="PATH", help="its Python environment: zip, tar.gz or folder"
    )
    program.add_argument(
        "--python_binary_path", metavar="PATH", help="its Python: absolute, or inside the venv"
    )
    program.add_argument(
        "--shell_env", metavar="K=V", action="append", default=[], help="for the program alone"
    )
    program.add_argument(
        "--container_env",
        metavar="K=V",
        action="append",
        default=[],
        help="for the program and what starts it",
    )
    program.add_argument(
        "--hdfs_classpath",
        metavar="PATHS",
        help="comma list for the CLASSPATH; a missing one is skipped with a warning",
    )
    program.add_argument(
        "--sidecar_tensorboard_log_dir", metavar="PATH", help="run a TensorBoard on this folder"
    )
    job = parser.add_argument_group("the job")
    job.add_argument(
        "--conf_file", metavar="FILE", help="the job file, local or remote; else ./tony.xml"
    )
    job.add_argument(
        "--conf", metavar="K=V", action="append", default=[], help="one key (may be repeated)"
    )
    job.add_argument("--scheduler", metavar="NAME", help="local, yarn, or one that is installed")
    add_login(job)
    mode = parser.add_argument_group("how")
    mode.add_argument("--detach", action="store_true", help="return once it is accepted")
    mode.add_argument(
        "--dry-run", action="store_true", help="print exactly what would be sent, and send nothing"
    )
    mode.add_argument("--json", action="store_true", help="JSON lines on standard output")
    if isinstance(parser, Parser):
        parser.free_text("--executes", "--task_params")


def run(args: argparse.Namespace) -> int:
    with Interrupts("interrupted; nothing was submitted") as interrupts:
        return _run(args, interrupts)


def _run(args: argparse.Namespace, interrupts: Interrupts) -> int:
    from tony_core.client.cluster_login import login_variables
    from tony_core.client.submission import load, prepare, send
    from tony_core.schedulers import open_scheduler

    use_login(args)  # the job file may be on the cluster
    loaded = load(job_arguments(args))
    job = loaded.job
    refuse_proxy_user(args, job.scheduler)
    os.environ.update(login_variables(job.hadoop))  # of a kill in a process of its own, too
    scheduler = open_scheduler(job.scheduler)
    try:
        prepared = prepare(scheduler, job)
        for problem in (*loaded.warnings, *prepared.warnings):
            _warn(problem)
        if args.dry_run:
            from tony_core.cli.dryrun import show

            return show(prepared, args.json)
        app_id = send(scheduler, prepared, interrupts.defer)
        limit = scheduler.lifetime_limit(app_id)
        if limit is not None:
            note(f"{app_id} {limit.text}")
        if args.detach:
            return _detached(app_id, args.json, limit)
        from tony_core.cli.follow import Follow, Forgotten, presenter_for

        try:
            presenter = presenter_for(args.json, scheduler)
            presenter.started(app_id, limit)
            follow = Follow(
                scheduler,
                app_id,
                presenter,
                interrupts,
                job=job,
                kills=lambda: open_scheduler(job.scheduler),
            )
            return follow.run()
        except Forgotten:
            raise
        except Exception:
            # A fault of ours must not end a training, and the user must know that it runs.
            note(
                f"lost the connection to {app_id}; the job is still running. Resume with:"
                f" tony attach {app_id}"
            )
            raise
    finally:
        scheduler.close()


def job_arguments(args: argparse.Namespace) -> JobArguments:
    """The options as the job's loader takes them."""
    from tony_core.job.load import JobArguments  # imports lxml

    return JobArguments(
        executes=args.executes,
        task_params=args.task_params,
        src_dir=args.src_dir,
        python_venv=args.python_venv,
        python_binary_path=args.python_binary_path,
        conf_file=args.conf_file,
        conf=args.conf,
        shell_env=args.shell_env,
        container_env=args.container_env,
        hdfs_classpath=args.hdfs_classpath,
        sidecar_tensorboard_log_dir=args.sidecar_tensorboard_log_dir,
        scheduler=args.scheduler,
        principal=args.principal,
        keytab=args.keytab,
        from_jvm=args.single_dash,
    )


def _detached(app_id: str, as_json: bool, limit: Optional[LifetimeLimit]) -> int:
    if as_json:
        print_json(application_data(app_id, limit), None)
    else:
        line(app_id)
        note(f"submitted. Watch it with: tony attach {app_id}; end it with: tony kill {app_id}")
    return 0


def _warn(problem: object) -> None:
    from tony_core.job.mask import mask_text

    warn(mask_text(str(problem)))
