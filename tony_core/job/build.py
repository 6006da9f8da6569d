"""Settings to one frozen :class:`Job`."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from tony_core.job.build_roles import RoleBuilder, find_roles
from tony_core.job.commands import common_command, python_of
from tony_core.job.keys.table import table
from tony_core.job.mask import mask_text
from tony_core.job.problems import Severity, did_you_mean
from tony_core.job.settings import Settings
from tony_core.job.spec import (
    MASTER_RESOURCES,
    Access,
    Docker,
    GroupDependency,
    Hadoop,
    History,
    Job,
    Limits,
    Local,
    MasterSpec,
    Metrics,
    Mlflow,
    Network,
    Program,
    Role,
    Runtime,
    Setting,
    Timeouts,
    Yarn,
)
from tony_core.job.tracking import read_certificates
from tony_core.job.units import ENV_NAME, parse_limit

OWN_LINKS = ("page", "portal", "tensorboard")


def build_job(settings: Settings, user: str) -> Job:
    """The job that the settings describe; problems are added to ``settings.problems``.

    The job is valid only when none of them is an error.
    """
    named = find_roles(settings)
    fields = settings.read_fields
    roles = RoleBuilder(settings, named).build()
    groups = _groups(settings, roles, named.known)
    _refuse_driver(settings)
    return Job(
        **fields("Job"),
        roles=roles,
        user=user,
        master=_master(settings, single=named.empty),
        timeouts=Timeouts(**fields("Timeouts")),
        program=Program(
            **fields("Program"),
            python=python_of(settings),
            shell_env=_env(settings, "tony.execution"),
            container_env=_env(settings, "tony.containers"),
        ),
        metrics=Metrics(**fields("Metrics")),
        network=Network(**fields("Network")),
        history=History(**fields("History")),
        mlflow=_mlflow(settings),
        runtime=Runtime(**fields("Runtime")),
        limits=Limits(
            **fields("Limits"), total=_total_limits(settings), instances=_role_limits(settings)
        ),
        hadoop=Hadoop(**fields("Hadoop")),
        access=Access(**fields("Access")),
        local=Local(**fields("Local"), nvidia_smi=settings.text("tony.gpu-exec-path")),
        yarn=Yarn(**fields("Yarn")),
        links=_links(settings),
        groups=groups,
        group_dependencies=_group_dependencies(settings, roles, dict(groups), named.known),
        settings=all_settings(settings),
    )


def _mlflow(settings: Settings) -> Mlflow:
    fields = settings.read_fields("Mlflow")
    given = {name: value for name, value in fields.items() if value is not None}
    path = settings.text("tony.mlflow.ca-file")
    certificates = read_certificates(path) if path and given.get("tracking_uri") else ""
    if path and given.get("tracking_uri") and not certificates:
        message = f"{path} has no certificate in PEM form, or cannot be read"
        settings.problem(message, key="tony.mlflow.ca-file")
    return Mlflow(**given, ca_pem=certificates)


def _refuse_driver(settings: Settings) -> None:
    """Refuse a job whose own program is in the role driver, the JVM TonY's part of Horovod: it is
    not run here, and the job must not run without it."""
    debug = "tony.horovod.driver.mode.debug"
    if settings.read(debug):
        settings.problem(
            "a Horovod driver of the job's own is not run: the master serves the rendezvous, for"
            " every Horovod that has gloo; leave out this key and tony.driver.*",
            settings.entry(debug),
        )
    elif settings.read("tony.application.framework") != "horovod":
        for entry, parts in settings.entries_like("tony.driver.<any>"):
            has_tasks = parts["any"] == "instances" and entry.text.strip() not in ("", "0")
            if has_tasks or parts["any"] == "command":
                settings.problem("'driver' is a reserved word, not a role: rename it", entry)


def all_settings(settings: Settings) -> Tuple[Setting, ...]:
    """Every value with its source: those that were set, then the defaults."""
    given = [
        Setting(entry.key, entry.text, entry.where, entry.final)
        for entry in settings.entries.values()
    ]
    defaults = [
        Setting(key.name, key.default, "default")
        for key in table().keys
        if key.default is not None and not key.is_pattern and key.name not in settings.entries
    ]
    return tuple(given + defaults)


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
    image = settings.text("tony.docker.am.image")
    docker = None
    if image is not None and settings.read("tony.docker.enabled"):
        docker = Docker(image, tuple(settings.read("tony.docker.containers.mount")))
    # The single task has what the job sets for the master: else it would be requested twice.
    sizes = {} if single else settings.read_fields("MasterSpec.resources")
    return MasterSpec(
        **settings.read_fields("MasterSpec"),
        resources=MASTER_RESOURCES._replace(**sizes),
        preprocess=preprocess,
        docker=docker,
    )


def _env(settings: Settings, prefix: str) -> Tuple[Tuple[str, str], ...]:
    """The variables of the list, then the single ones, which win."""
    env: Dict[str, str] = dict(settings.read(f"{prefix}.envs"))
    for entry, parts in settings.matching(f"{prefix}.env.<any>"):
        if ENV_NAME.fullmatch(parts["any"]) is None:
            settings.problem(f"{parts['any']!r} is not a name for a variable", entry)
        env[parts["any"]] = entry.text
    return tuple(env.items())


def _links(settings: Settings) -> Tuple[Tuple[str, str], ...]:
    entry = settings.entry("tony.application.links")
    links = settings.read("tony.application.links")
    for name, url in links:
        if not url.startswith(("http://", "https://")):
            settings.problem(
                f"{name} is no address for a browser: write http://... or https://...", entry
            )
        if name in OWN_LINKS:
            settings.problem(f"{name} is a link that every job has: choose another name", entry)
    return tuple((name, mask_text(url)) for name, url in links)


def _total_limits(settings: Settings) -> Tuple[Tuple[str, int], ...]:
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
    return tuple(total)


def _role_limits(settings: Settings) -> Tuple[Tuple[str, int], ...]:
    instances: List[Tuple[str, int]] = []
    for _, parts in settings.matching("tony.<role>.max-instances"):
        limit = settings.read("tony.<role>.max-instances", **parts)
        if limit is not None:
            instances.append((parts["role"], limit))
    return tuple(instances)


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
    settings: Settings, roles: Tuple[Role, ...], groups: Dict[str, Tuple[str, ...]], known: set[str]
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
            out[index] = out[index]._replace(ignored=ignored)
        elif ignored and settings.entry(pattern, **parts) is None:
            settings.problem("of no effect: the timeout itself is not set", entry)
    return tuple(out)
