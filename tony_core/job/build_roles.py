"""Settings to roles: their tasks, command, order, and what the end of a task means."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from tony_core.job.commands import common_command
from tony_core.job.keys.table import RESERVED_ROLES, ROLE_NAME, WELL_KNOWN_ROLES, table
from tony_core.job.problems import Severity, did_you_mean
from tony_core.job.settings import Settings, is_remote
from tony_core.job.spec import TENSORBOARD_COMMAND, Docker, FileRef, Resources, Role, Tracking
from tony_core.job.xmlfile import Entry

TENSORBOARD = "tensorboard"
SINGLE = "worker"  # what the one task of a job without instances is called
_TENSORBOARD_MEMORY_MB = 1024
# JVM TonY's own defaults set these for roles that a job may not have.
_JVM_DEFAULTS = {
    "tony.ps.memory": "2g",
    "tony.ps.vcores": "1",
    "tony.worker.memory": "2g",
    "tony.worker.vcores": "1",
    "tony.worker.gpus": "0",
}
# Roles of a framework that serve until the others are done, unless the job sets them itself.
_SERVING = {"mxnet": ("scheduler", "server")}


class Named(NamedTuple):
    """The roles that the settings name."""

    instances: Dict[str, int]  # those with at least one task, in the order of the file
    known: Set[str]  # those and the ones with 0 instances

    @property
    def empty(self) -> bool:
        """Whether the job is one single task."""
        return not self.instances


def role_entries(settings: Settings) -> Dict[str, List[Entry]]:
    """Every ``tony.<role>.*`` entry by role."""
    out: Dict[str, List[Entry]] = {}
    for key in table().keys:
        if key.name.startswith("tony.<role>."):
            for entry, parts in settings.entries_like(key.name):
                out.setdefault(parts["role"], []).append(entry)
    order = {name: index for index, name in enumerate(settings.entries)}
    for entries in out.values():
        entries.sort(key=lambda entry: order[entry.key])
    return dict(sorted(out.items(), key=lambda item: order[item[1][0].key]))


def find_roles(settings: Settings) -> Named:
    """The roles and their counts; reports bad names and keys of a role without instances."""
    by_role = role_entries(settings)
    counts: Dict[str, int] = {}
    for name, entries in by_role.items():
        if name in RESERVED_ROLES:
            for entry in entries:
                settings.problem(f"{name!r} is a reserved word, not a role", entry)
        elif ROLE_NAME.fullmatch(name) is None or len(name) > 64:
            message = "is no role name: lower case letters, digits and -, a letter first"
            settings.problem(f"{name[:80]!r} {message}, at most 64", entries[0])
        elif settings.is_set("tony.<role>.instances", role=name):
            count = settings.read("tony.<role>.instances", role=name)
            counts[name] = 1 if count is None else count  # unreadable: reported already
    known = set(counts)
    for name, entries in by_role.items():
        if name in known or name in RESERVED_ROLES or ROLE_NAME.fullmatch(name) is None:
            continue
        if name == TENSORBOARD and settings.is_set("tony.application.tensorboard-log-dir"):
            continue  # these describe the role that we make
        if _without_instances(settings, name, entries, counts):
            known.add(name)
    for name in counts:
        near = nearly(name)
        if near is not None:
            settings.problem(
                f"the role {name!r} is one letter from the well-known {near!r}",
                settings.entry("tony.<role>.instances", role=name),
                severity=Severity.WARNING,
            )
    return Named({name: count for name, count in counts.items() if count > 0}, known)


def _without_instances(
    settings: Settings, name: str, entries: List[Entry], counts: Dict[str, int]
) -> bool:
    """Report the keys of a role without instances, which is no role, as for the JVM TonY; a name
    that is nearly one of the job's roles is an error. False when only the site sets them."""
    for entry in entries:
        if entry.key.endswith(".max-instances") or settings.is_from_site(entry):
            continue  # an administrator's cap or default for jobs with such a role
        if _JVM_DEFAULTS.get(entry.key) == entry.text.strip():
            continue
        text, severity = f"tony.{name}.instances is not set", Severity.WARNING
        single = not any(counts.values())
        hint = "" if name == SINGLE and single else did_you_mean(name, list(counts) or [SINGLE])
        if hint:
            text, severity = f"{text}: of no effect without it{hint}", Severity.ERROR
        elif name == SINGLE and single:
            text += ": the job is one single task, and this describes it"
        else:
            text += (
                f", so the job has no {name} and this has no effect;"
                f" for one task write tony.{name}.instances=1"
            )
        settings.problem(text, entry, severity=severity)
        return True
    return False


def nearly(name: str) -> Optional[str]:
    """The well-known role that a name is one letter (more, less, other, swapped) away from."""
    if name in WELL_KNOWN_ROLES:
        return None
    for known in WELL_KNOWN_ROLES:
        if len(known) > 3 and _one_edit(name, known):
            return known
    return None


def _one_edit(a: str, b: str) -> bool:
    if abs(len(a) - len(b)) > 1:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    if len(a) == len(b):
        other = a[start + 1 :] == b[start + 1 :]
        swapped = a[start : start + 2] == b[start : start + 2][::-1]
        return other or (swapped and a[start + 2 :] == b[start + 2 :])
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[start + 1 :] == shorter[start:]


class RoleBuilder:
    def __init__(self, settings: Settings, named: Named) -> None:
        self.settings = settings
        self.named = named
        self.common = common_command(settings)
        self.files = settings.read("tony.containers.resources")
        self.log_dir = settings.text("tony.application.tensorboard-log-dir")

    def build(self) -> Tuple[Role, ...]:
        """All roles; without instances of any, the single task."""
        tracking = self._tracking()
        stop = self._role_list("tony.application.stop-on-failure-jobtypes")
        roles = [self._role(name, count) for name, count in self.named.instances.items()]
        if not roles:
            roles = [self._single()]
            tracking = {}
        sidecar = self._tensorboard([role.name for role in roles])
        if sidecar is not None:
            roles.append(sidecar)
            tracking = {**tracking, TENSORBOARD: Tracking.SIDECAR}
        roles = [
            role._replace(
                tracking=tracking.get(role.name, Tracking.TRACKED),
                stop_on_failure=role.name in stop,
            )
            for role in roles
        ]
        after = self._order({role.name: role.tracking for role in roles})
        return tuple(role._replace(depends_on=after.get(role.name, ())) for role in roles)

    def _role(self, name: str, count: int) -> Role:
        return Role(
            name=name,
            instances=count,
            resources=self._resources(name),
            command=self._command(name),
            files=self._files(name),
            docker=read_docker(self.settings, name),
            **self.settings.read_fields("Role", role=name),
        )

    def _single(self) -> Role:
        """The one task of a job without instances: JVM TonY runs it inside its master, so
        the keys of the master are meant for it."""
        settings = self.settings
        role = self._role(SINGLE, 1)
        mine = role.resources
        for field, master in table().filling("MasterSpec.resources").items():
            own = table().filling("Role.resources")[field]
            if settings.is_set(master) and not settings.is_set(own, role=SINGLE):
                mine = mine._replace(**{field: settings.read(master)})
        command = role.command
        if not settings.read("tony.application.enable-preprocess"):
            command = settings.text("tony.am.command") or command
        files = settings.read("tony.am.resources")
        entry = settings.entry("tony.am.resources")
        files = role.files + settings.unique_files(files, self.files + role.files, entry)
        label = role.node_label or settings.text("tony.am.node-label")
        return role._replace(resources=mine, command=command, files=files, node_label=label)

    def _resources(self, name: str) -> Resources:
        settings = self.settings
        other = []
        for entry, parts in settings.matching("tony.<role>.resource.<resource>"):
            if parts["role"] == name:
                amount = settings.read("tony.<role>.resource.<resource>", **parts)
                if amount:
                    other.append((parts["resource"], int(amount)))
                elif amount is None:
                    settings.problem("has no amount: write a whole number", entry)
        sizes = settings.read_fields("Role.resources", role=name)
        return Resources(**sizes, other=tuple(other))

    def _command(self, name: str) -> str:
        own = self.settings.text("tony.<role>.command", role=name)
        if own is None and name == TENSORBOARD and self.log_dir is not None:
            return TENSORBOARD_COMMAND
        return own or self.common or ""

    def _files(self, name: str) -> Tuple[FileRef, ...]:
        files = self.settings.read("tony.<role>.resources", role=name)
        entry = self.settings.entry("tony.<role>.resources", role=name)
        return self.settings.unique_files(files, self.files, entry)

    def _tensorboard(self, names: Sequence[str]) -> Optional[Role]:
        """TensorBoard's own sidecar, where the log dir can be read from anywhere.

        On a local log dir the chief's executor runs it beside the chief, unless the job
        gave it a command of its own.
        """
        settings = self.settings
        if self.log_dir is None or TENSORBOARD in names or TENSORBOARD in self.named.known:
            return None
        own = settings.text("tony.<role>.command", role=TENSORBOARD)
        if own is None and not is_remote(self.log_dir):
            for entry in role_entries(settings).get(TENSORBOARD, ()):
                if not settings.is_from_site(entry):
                    message = (
                        "of no effect: TensorBoard runs beside the chief, its log dir is local"
                    )
                    settings.problem(message, entry, severity=Severity.WARNING)
            return None
        role = self._role(TENSORBOARD, 1)._replace(generated=True)
        if not settings.is_set("tony.<role>.memory", role=TENSORBOARD):
            small = role.resources._replace(memory_mb=_TENSORBOARD_MEMORY_MB)
            role = role._replace(resources=small)
        return role

    def _role_list(self, key: str) -> Tuple[str, ...]:
        """A list of roles; warns of one that the job does not have."""
        names: Tuple[str, ...] = self.settings.read(key)
        entry = self.settings.entry(key)
        known = self.named.known | {TENSORBOARD, "ps"} | RESERVED_ROLES
        known |= {SINGLE} if self.named.empty else set()
        if entry is not None and not self.settings.is_from_site(entry):
            for name in names:
                if name not in known:
                    hint = did_you_mean(name, sorted(self.named.known))
                    message = f"there is no role {name!r}{hint}"
                    self.settings.problem(message, entry, severity=Severity.WARNING)
        return names

    def _tracking(self) -> Dict[str, Tracking]:
        untracked_key = "tony.application.untracked.jobtypes"
        sidecar_key = "tony.application.sidecar.jobtypes"
        untracked, sidecar = self._role_list(untracked_key), self._role_list(sidecar_key)
        if not self.settings.is_set(untracked_key):
            framework = self.settings.read("tony.application.framework")
            untracked = (*untracked, *_SERVING.get(framework, ()))
        out = dict.fromkeys(untracked, Tracking.UNTRACKED)
        for name in sidecar:
            if name not in out or not self.settings.is_set(untracked_key):
                out[name] = Tracking.SIDECAR
            elif self.settings.is_set(sidecar_key):
                entry = self.settings.entry(sidecar_key)
                self.settings.problem(f"{name!r} is untracked as well as a sidecar", entry)
        return out

    def _order(self, tracking: Dict[str, Tracking]) -> Dict[str, Tuple[str, ...]]:
        """Stages and ``depends-on`` as one relation: role to the roles before it."""
        after: Dict[str, List[str]] = {name: [] for name in tracking}
        for name in self.named.instances:
            key = f"tony.{name}.depends-on"
            for other in self.settings.read("tony.<role>.depends-on", role=name):
                if self._may_depend(name, other, tracking, key):
                    after[name].append(other)
        prepare = self._stage("tony.application.prepare-stage", tracking)
        training = self._stage("tony.application.training-stage", tracking)
        if prepare and not training:
            training = [name for name in tracking if name not in prepare]
        if training and not prepare and self.settings.is_set("tony.application.training-stage"):
            prepare = [name for name in tracking if name not in training]
        for name in set(prepare) & set(training):
            self.settings.problem(
                f"{name!r} is in the prepare stage too", key="tony.application.training-stage"
            )
        for name in training:
            after[name].extend(
                other
                for other in prepare
                if tracking[other] is Tracking.TRACKED and other not in training
            )
        return {name: tuple(dict.fromkeys(others)) for name, others in after.items()}

    def _stage(self, key: str, tracking: Dict[str, Tracking]) -> List[str]:
        out = []
        for name in self.settings.read(key):
            if name in tracking:
                out.append(name)
            elif name not in self.named.known:
                hint = did_you_mean(name, sorted(tracking))
                self.settings.problem(f"there is no role {name!r}{hint}", key=key)
        return out

    def _may_depend(self, name: str, other: str, tracking: Dict[str, Tracking], key: str) -> bool:
        if other in tracking:
            if tracking[other] is Tracking.TRACKED:
                return True
            message = f"{other!r} is {tracking[other].value}: it is never waited for"
            self.settings.problem(message, key=key)
        elif other not in self.named.known:
            hint = did_you_mean(other, sorted(tracking))
            self.settings.problem(f"there is no role {other!r}{hint}", key=key)
        return False


def read_docker(settings: Settings, role: str) -> Optional[Docker]:
    """The image of one role, when docker is on."""
    image = settings.text("tony.docker.<role>.image", role=role)
    mounts = tuple(settings.read("tony.docker.containers.mount"))
    if not settings.read("tony.docker.enabled"):
        return None
    if image is None:
        settings.problem(
            f"is true, and there is no image for {role}: set tony.docker.containers.image"
            f" or tony.docker.{role}.image",
            key="tony.docker.enabled",
        )
        return None
    for mount in mounts:
        parts = mount.split(":")
        absolute = len(parts) > 1 and parts[0].startswith("/") and parts[1].startswith("/")
        if not absolute or len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
            message = f"{mount!r} is not source:destination[:ro|rw] with absolute paths"
            settings.problem(message, key="tony.docker.containers.mount")
    return Docker(image, mounts)
