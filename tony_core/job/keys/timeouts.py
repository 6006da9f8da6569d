"""Keys that say how long something may take, and how often something is sent."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind, Off
from tony_core.job.spec import StallAction

KEYS = [
    Key("tony.application.timeout", Kind.DURATION, default="off", unit="ms",
        fills="Timeouts.application_s", doc="How long the whole job may take."),
    Key("tony.application.chief-grace", Kind.DURATION, default="60s", unit="s",
        fills="Timeouts.chief_grace_s", off=Off.ZERO,
        doc="How long the others may go on once the chief has succeeded."),
    Key("tony.application.elastic-interval", Kind.DURATION, default="30s", unit="s",
        fills="Timeouts.elastic_interval_s", off=Off.ZERO,
        doc="How long a round of an elastic role lasts at least before more tasks are taken in."),
    Key("tony.container.allocation.timeout", Kind.DURATION, default="15m", unit="ms",
        fills="Timeouts.allocation_s", off=Off.DEFAULT,
        doc="How long a job may hold some of its containers and not all."),
    Key("tony.container.registration.timeout", Kind.DURATION, default="5m", unit="ms",
        fills="Timeouts.registration_s", off=Off.DEFAULT,
        doc="How long a started container may take to register."),
    Key("tony.task.executor.registry-timeout-sec", Kind.DURATION, default="300", unit="s",
        fills="Timeouts.registry_s", off=Off.DEFAULT,
        doc="How long an executor, once the master has welcomed it, waits for its task, and then"
            " may take to prepare it. For the rest of the gang the master waits"
            " (tony.container.allocation.timeout, tony.container.registration.timeout)."),
    Key("tony.task.executor.execution-timeout-ms", Kind.DURATION, default="off", unit="ms",
        fills="Timeouts.execution_s", doc="How long the program of one task may run."),
    Key("tony.task.heartbeat-interval-ms", Kind.DURATION, default="1000", unit="ms",
        fills="Timeouts.heartbeat_s", off=Off.DEFAULT, doc="How often executors send a heartbeat."),
    Key("tony.task.max-missed-heartbeats", Kind.INT, default="25", at_least=1,
        fills="Timeouts.max_missed_heartbeats",
        doc="How many missing heartbeats make a task, or for its executor the master, lost."),
    Key("tony.task.master-lost-timeout", Kind.DURATION, unit="s", fills="Timeouts.master_lost_s",
        doc="How long tasks go on without a master: by default 20m, on the local scheduler 30s."
            " It begins when a dead master's connection closes; for one that hangs, after"
            " max-missed-heartbeats x heartbeat-interval of silence."),
    Key("tony.task.kill-grace", Kind.DURATION, default="10s", unit="s",
        fills="Timeouts.kill_grace_s", off=Off.ZERO,
        doc="How long a task has between TERM and KILL when the job is killed."),
    Key("tony.task.stall-timeout", Kind.DURATION, default="off", unit="s",
        fills="Timeouts.stall_s",
        doc="How long a program that reports steps (tony.report) may report none, and one that"
            " reports none may neither write logs nor compute, until it counts as stalled. It"
            " must be longer than the longest step, evaluation and checkpoint: 1s or more, or off"
            " (0, -1), which watches nothing. For tracked roles but evaluator, notebook and"
            " tensorboard."),
    Key("tony.task.stall-action", Kind.CHOICE, default="warn",
        choices=("warn", "restart", "fail"), fills="Timeouts.stall_action", convert=StallAction,
        doc="What follows from a stall: a line in the job's story, a restart from the checkpoint"
            " (tony.am.retry-count pays for it), or the end of the job as failed."),
]  # fmt: skip
