"""Settings to one frozen :class:`Job`."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from tony_core.dataclass import replace
from tony_core.job.build_roles import RoleBuilder, find_roles
from tony_core.job.commands import common_command, python_of
from tony_core.job.keys import table
from tony_core.job.mask import mask_text
from tony_core.job.problems import Severity, did_you_mean
from tony_core.job.resources import read_files
from tony_core.job.settings import Settings
from tony_core.job.spec import (
    Docker,
    GroupDependency,
    Hadoop,
    History,
    Job,
    Limits,
    Local,
    MasterSpec,
    Metrics,
    Mode,
    Network,
    Program,
    Resources,
    RestartMode,
    Role,
    Runtime,
    Setting,
    Timeouts,
    Yarn,
)
from tony_core.job.units import ENV_NAME, parse_limit

OWN_LINKS = ("page", "portal", "tensorboard")
_FOREVER_S = 100 * 365 * 86400.0


def build_job(settings: Settings, user: str) -> Job:
    """The job that the settings describe; what is wrong goes into ``settings.problems``.

    The result is only good when no error was found.
    """
    named = find_roles(settings)
    builder = RoleBuilder(settings, named)
    roles = builder.build()
    groups = _groups(settings, roles, named.known)
    _refuse_driver(settings)
    # A name is for people only, and stands in places where nobody masks it.
    name = mask_text(settings.text("tony.application.name") or "TonyApplication")
    return Job(
        name=name,
        roles=roles,
        framework=str(settings.read("tony.application.framework")).lower(),
        type=settings.read("tony.application.type"),
        mode=Mode(settings.read("tony.application.distributed-mode")),
        user=user,
        queue=settings.read("tony.yarn.queue"),
        tags=settings.read("tony.application.tags"),
        node_label=settings.text("tony.application.node-label"),
        placement_spec=settings.text("tony.application.placement-spec"),
        scheduler=str(settings.read("tony.scheduler")).lower(),
        master=_master(settings, single=named.empty),
        timeouts=_timeouts(settings),
        program=_program(settings),
        files=builder.files,
        metrics=Metrics(
            interval_s=settings.seconds("tony.task.metrics-interval-ms"),
            gpu=settings.read("tony.task.gpu-metrics.enabled"),
            gpu_exec_path=settings.text("tony.gpu-exec-path"),
            gpu_check=settings.read("tony.task.gpu-check"),
            error_lines=settings.read("tony.task.executor.execution.error-message-max-depth"),
        ),
        network=_network(settings),
        history=_history(settings),
        runtime=Runtime(
            python=settings.read("tony.runtime.python"),
            location=settings.path("tony.runtime.location"),
        ),
        limits=_limits(settings),
        hadoop=_hadoop(settings),
        local=Local(
            memory_mb=settings.read("tony.local.memory"),
            vcores=settings.read("tony.local.vcores"),
            gpus=settings.read("tony.local.gpus"),
            nvidia_smi=settings.text("tony.gpu-exec-path"),
        ),
        yarn=Yarn(
            staging_dir=settings.path("tony.yarn.staging-dir"),
            priority=settings.read("tony.application.priority"),
            view_acl=settings.text("tony.yarn.acl.view"),
            modify_acl=settings.text("tony.yarn.acl.modify"),
        ),
        fail_on_worker_failure=settings.read("tony.application.fail-on-worker-failure-enabled"),
        links=_links(settings),
        groups=groups,
        group_dependencies=_group_dependencies(settings, roles, dict(groups), named.known),
        settings=all_settings(settings),
    )


def _refuse_driver(settings: Settings) -> None:
    """The role driver is the JVM TonY's part of Horovod; a program of the job's own in it is not
    run, and a job must not run without it."""
    debug = "tony.horovod.driver.mode.debug"
    if settings.read(debug):
        settings.problem(
            "a Horovod driver of the job's own is not run: the master serves the rendezvous, for"
            " every Horovod that has gloo; leave out this key and tony.driver.*",
            settings.entry(debug),
        )
    elif str(settings.read("tony.application.framework")).lower() != "horovod":
        for entry, parts in settings.like("tony.driver.<any>"):
            has_tasks = parts["any"] == "instances" and entry.text.strip() not in ("", "0")
            if has_tasks or parts["any"] == "command":
                settings.problem("'driver' is a reserved word, not a role: rename it", entry)


def all_settings(settings: Settings) -> Tuple[Setting, ...]:
    """Every value with where it came from: what was said, then the defaults."""
    said = [
        Setting(entry.key, entry.text, entry.where, entry.final)
        for entry in settings.entries.values()
    ]
    defaults = [
        Setting(key.name, key.default, "default")
        for key in table().keys
        if key.default is not None and not key.is_pattern and key.name not in settings.entries
    ]
    return tuple(said + defaults)


def _master(settings: Settings, single: bool) -> MasterSpec:
    preprocess: Optional[str] = None
    command = settings.text("tony.am.command")
    if settings.read("tony.application.enable-preprocess"):
        # JVM TonY runs the common command in its master when it was given no other.
        preprocess = command or common_command(settings)
        if preprocess is None:
            message = "is true, and there is no tony.am.command to run"
            settings.problem(message, key="tony.application.enable-preprocess")
    elif command is not None and not single:
        message = "of no effect without tony.application.enable-preprocess"
        settings.problem(message, key="tony.am.command", severity=Severity.WARNING)
    resources = Resources(
        memory_mb=settings.read("tony.am.memory"),
        vcores=settings.read("tony.am.vcores"),
        gpus=settings.read("tony.am.gpus"),
    )
    image = settings.text("tony.docker.am.image")
    docker = None
    if image is not None and settings.read("tony.docker.enabled"):
        docker = Docker(image, tuple(settings.read("tony.docker.containers.mount")))
    return MasterSpec(
        # The single task took what was said of the master: it would be asked for twice.
        resources=Resources(memory_mb=512) if single else resources,
        node_label=settings.text("tony.am.node-label"),
        files=read_files(settings, "tony.am.resources"),
        preprocess=preprocess,
        user_retries=settings.read("tony.am.retry-count"),
        infrastructure_retries=settings.read("tony.task.max-infrastructure-failures"),
        max_attempts=settings.read("tony.am.max-attempts"),
        restart_mode=RestartMode(settings.read("tony.am.restart-mode")),
        startup_timeout_s=settings.seconds("tony.am.startup-timeout"),
        docker=docker,
    )


def _timeouts(settings: Settings) -> Timeouts:
    return Timeouts(
        application_s=settings.read("tony.application.timeout"),
        allocation_s=settings.seconds("tony.container.allocation.timeout"),
        registration_s=settings.seconds("tony.container.registration.timeout"),
        registry_s=settings.seconds("tony.task.executor.registry-timeout-sec"),
        execution_s=settings.read("tony.task.executor.execution-timeout-ms"),
        heartbeat_s=settings.seconds("tony.task.heartbeat-interval-ms"),
        max_missed_heartbeats=settings.read("tony.task.max-missed-heartbeats"),
        master_lost_s=settings.read("tony.task.master-lost-timeout"),
        # A grace of "off" or 0 is none at all, not for ever.
        kill_grace_s=settings.read("tony.task.kill-grace") or 0.0,
        chief_grace_s=settings.read("tony.application.chief-grace") or 0.0,
        elastic_interval_s=settings.read("tony.application.elastic-interval") or 0.0,
        client_lease_s=settings.read("tony.client.lease"),
        client_first_lease_s=settings.read("tony.client.first-lease"),
    )


def _program(settings: Settings) -> Program:
    return Program(
        src=settings.path("tony.client.src-dir"),
        venv=settings.path("tony.client.python-venv"),
        python=python_of(settings),
        hdfs_classpath=settings.read("tony.client.hdfs-classpath"),
        shell_env=_env(settings, "tony.execution"),
        container_env=_env(settings, "tony.containers"),
        checkpoint_dir=settings.path("tony.application.checkpoint-dir"),
        tensorboard_log_dir=settings.path("tony.application.tensorboard-log-dir"),
        tensorboard_first=settings.read("tony.application.tensorboard-first"),
    )


def _env(settings: Settings, prefix: str) -> Tuple[Tuple[str, str], ...]:
    """The list, then the single variables, which win."""
    env: Dict[str, str] = dict(settings.read(f"{prefix}.envs"))
    for entry, parts in settings.matching(f"{prefix}.env.<any>"):
        if ENV_NAME.fullmatch(parts["any"]) is None:
            settings.problem(f"{parts['any']!r} is not a name for a variable", entry)
        env[parts["any"]] = entry.text
    return tuple(env.items())


def _history(settings: Settings) -> History:
    retention = settings.read("tony.history.retention-sec")
    return History(
        location=settings.path("tony.history.location"),
        retention_s=_FOREVER_S if retention is None else retention,
        portal_url=settings.text("tony.portal.url"),
    )


def _links(settings: Settings) -> Tuple[Tuple[str, str], ...]:
    entry = settings.entry("tony.application.links")
    links = settings.read("tony.application.links")
    for name, url in links:
        if not url.startswith(("http://", "https://")):
            settings.problem(
                f"{name} is no address for a browser (http://... or https://...)", entry
            )
        if name in OWN_LINKS:
            settings.problem(f"{name} is a link that every job has: choose another name", entry)
    return tuple((name, mask_text(url)) for name, url in links)


def _hadoop(settings: Settings) -> Hadoop:
    return Hadoop(
        location=settings.path("tony.application.hadoop.location"),
        classpath=settings.text("tony.application.hadoop.classpath"),
        hdfs_conf=settings.path("tony.application.hdfs-conf-path"),
        yarn_conf=settings.path("tony.application.yarn-conf-path"),
        mapred_conf=settings.path("tony.application.mapred-conf-path"),
        rm_retries=settings.read("tony.application.num-client-rm-connect-retries"),
        security=settings.read("tony.application.security.enabled"),
        keytab_user=settings.text("tony.keytab.user"),
        keytab_location=settings.text("tony.keytab.location"),
        namenodes=settings.read("tony.other.namenodes"),
    )


def _limits(settings: Settings) -> Limits:
    total: List[Tuple[str, int]] = []
    for entry, parts in settings.matching("tony.task.max-total-<resource>"):
        name = parts["resource"]
        try:
            limit = parse_limit(entry.text, memory=name == "memory") if entry.text.strip() else None
        except ValueError as error:
            settings.problem(str(error), entry)
            continue
        if limit is not None:
            total.append((name, limit))
    instances: List[Tuple[str, int]] = []
    for _, parts in settings.matching("tony.<role>.max-instances"):
        limit = settings.read("tony.<role>.max-instances", **parts)
        if limit is not None:
            instances.append((parts["role"], limit))
    return Limits(
        total_instances=settings.read("tony.task.max-total-instances"),
        total=tuple(total),
        instances=tuple(instances),
        archive_mb=settings.read("tony.containers.archive-max-size"),
        archive_members=settings.read("tony.containers.archive-max-members"),
    )


def _network(settings: Settings) -> Network:
    return Network(
        port_range=settings.read("tony.task.port-range"), tls=settings.read("tony.task.tls")
    )


def _groups(
    settings: Settings, roles: Tuple[Role, ...], known: set[str]
) -> Tuple[Tuple[str, Tuple[str, ...]], ...]:
    names = [role.name for role in roles]
    out = []
    for entry, parts in settings.matching("tony.application.group.<group>"):
        members = settings.read("tony.application.group.<group>", **parts)
        for member in members:
            if member not in names and member not in known:
                hint = did_you_mean(member, names)
                settings.problem(f"there is no role {member!r}{hint}", entry)
        out.append((parts["group"], tuple(name for name in members if name in names)))
    return tuple(out)


def _group_dependencies(
    settings: Settings,
    roles: Tuple[Role, ...],
    groups: Dict[str, Tuple[str, ...]],
    known: set[str],
) -> Tuple[GroupDependency, ...]:
    names = [role.name for role in roles]
    pattern = "tony.application.dependency.<role>.timeout.after.<group>"
    out: List[GroupDependency] = []
    for entry, parts in settings.matching(pattern):
        role, group = parts["role"], parts["group"]
        seconds = settings.read(pattern, **parts)
        if role not in names:
            if role not in known:
                settings.problem(f"there is no role {role!r}{did_you_mean(role, names)}", entry)
            continue
        if group not in groups:
            hint = did_you_mean(group, list(groups))
            settings.problem(f"there is no tony.application.group.{group}{hint}", entry)
            continue
        if seconds is not None:
            out.append(GroupDependency(role, group, seconds))
    for entry, parts in settings.matching(f"{pattern}.ignored"):
        ignored = settings.read(f"{pattern}.ignored", **parts)
        where = [(each.role, each.group) for each in out]
        if (parts["role"], parts["group"]) in where:
            index = where.index((parts["role"], parts["group"]))
            out[index] = replace(out[index], ignored=ignored)
        elif ignored and settings.entry(pattern, **parts) is None:
            settings.problem("of no effect: the timeout itself is not set", entry)
    return tuple(out)
