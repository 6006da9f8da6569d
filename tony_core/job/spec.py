"""A job as immutable records.

A :class:`Job` is complete and validated: every default filled in, every unit parsed,
every role with its command. It is made by :mod:`tony_core.job.build` from the layered
configuration, or by a program directly. Nothing below this module reads a ``tony.*``
key: the client, the master and the schedulers read these fields.

It must run on the nodes' Python (3.9) with the standard library only.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Optional, Tuple

# The command of a role that runs TensorBoard as the executor sees fit.
TENSORBOARD_COMMAND = "tony:tensorboard"

# A longer time is no limit.
LONGEST_STALL_S = 365 * 86400.0
# Tracked roles whose programs wait, by their nature, for other programs.
WAITING_ROLES = ("evaluator", "notebook", "tensorboard")

# In an FCFS job of more tasks, tasks do not get the addresses of those that were ready before.
MOST_FCFS_ADDRESSES = 1000


class Tracking(str, Enum):
    """Whether the job waits for a task, and what the task's failure does."""

    TRACKED = "tracked"  # waited for; its failure fails the session
    UNTRACKED = "untracked"  # not waited for; its failure is fatal
    SIDECAR = "sidecar"  # not waited for; its failure is ignored


class Mode(str, Enum):
    """When tasks start: all together over one cluster spec, or each at once."""

    GANG = "GANG"
    FCFS = "FCFS"


class RestartMode(str, Enum):
    """Which containers a new session keeps."""

    WARM = "warm"  # healthy containers and executors stay, only the child is replaced
    FRESH = "fresh"  # every container is new


class RestartScope(str, Enum):
    """Whether a failed task restarts its session or only itself."""

    SESSION = "session"  # the whole session
    TASK = "task"  # only this task, as long as its own budget lasts


class StallAction(str, Enum):
    """What follows when programs stand still."""

    WARN = "warn"  # the story names them
    RESTART = "restart"  # the programs start anew, from their checkpoint
    FAIL = "fail"  # the job ends


class TokenRefresh(str, Enum):
    """What becomes of running programs when the job has fresh tokens."""

    LEAVE = "leave"  # they run on; import tony reads the new token file
    RESTART = "restart"  # all start anew from the checkpoint, for what reads its tokens once


class Resources(NamedTuple):
    """Resources of a container."""

    memory_mb: int = 2048
    vcores: int = 1
    gpus: int = 0
    other: Tuple[Tuple[str, int], ...] = ()  # any other resource type of the cluster


MASTER_RESOURCES = Resources(memory_mb=512)


class FileRef(NamedTuple):
    """One entry of a ``resources`` list: ``source[::name][#archive]``."""

    source: str
    name: str  # what it is called in the working folder
    archive: bool = False  # unpacked into a folder of that name


class Docker(NamedTuple):
    """The image a container runs in, if any."""

    image: str
    mounts: Tuple[str, ...] = ()


class Role(NamedTuple):
    """A kind of task, and how many of it."""

    name: str
    instances: int
    resources: Resources
    command: str
    tracking: Tracking = Tracking.TRACKED
    stop_on_failure: bool = False
    depends_on: Tuple[str, ...] = ()
    files: Tuple[FileRef, ...] = ()
    node_label: Optional[str] = None
    placement_spec: Optional[str] = None
    allocation_tags: Tuple[str, ...] = ()
    docker: Optional[Docker] = None
    restart_scope: RestartScope = RestartScope.SESSION
    max_restarts: int = 3  # of one task, while the others go on
    min_instances: Optional[int] = None  # of an elastic role; None: all of them
    generated: bool = False  # made by us (the tensorboard sidecar), not named in the job file
    stall_s: Optional[float] = None  # instead of Timeouts.stall_s; None: that one

    @property
    def least(self) -> int:
        """How many of its tasks the job needs."""
        return self.instances if self.min_instances is None else self.min_instances

    @property
    def is_elastic(self) -> bool:
        """Whether its job runs with fewer tasks than it asks for."""
        return self.least < self.instances

    @property
    def has_task_restart(self) -> bool:
        """Whether its tasks are started again while everybody else's programs go on."""
        ignored = self.tracking is Tracking.SIDECAR and not self.stop_on_failure
        return ignored or self.restart_scope is RestartScope.TASK


class GroupDependency(NamedTuple):
    """``tony.application.dependency.<role>.timeout.after.<group>``.

    Once every task of the group has ended, the role has ``timeout_s`` to end; then its
    tasks count as failed, or as succeeded when ``ignored``.
    """

    role: str
    group: str
    timeout_s: float
    ignored: bool = False


class MasterSpec(NamedTuple):
    """The application master's own container and budgets."""

    resources: Resources = MASTER_RESOURCES
    node_label: Optional[str] = None
    files: Tuple[FileRef, ...] = ()
    preprocess: Optional[str] = None  # tony.am.command when enable-preprocess is on
    user_retries: int = 2  # tony.am.retry-count
    infrastructure_retries: int = 10  # tony.task.max-infrastructure-failures
    max_attempts: int = 2  # tony.am.max-attempts: masters
    restart_mode: RestartMode = RestartMode.WARM
    startup_timeout_s: float = 600.0
    docker: Optional[Docker] = None  # tony.docker.am.image


class Timeouts(NamedTuple):
    """Every wait has a deadline. ``None`` is off."""

    application_s: Optional[float] = None
    allocation_s: float = 900.0
    registration_s: float = 300.0
    registry_s: float = 300.0  # the executor's: from its start until it is ready
    execution_s: Optional[float] = None  # the executor's: how long the program may run
    heartbeat_s: float = 1.0
    max_missed_heartbeats: int = 25
    master_lost_s: Optional[float] = None  # None: the scheduler's own (YARN 20 min, local 30 s)
    kill_grace_s: float = 10.0
    chief_grace_s: float = 60.0
    elastic_interval_s: float = 30.0  # from a round's beginning to the next that grows
    client_lease_s: Optional[float] = None
    client_first_lease_s: Optional[float] = None  # until a client contacts it; None: the lease
    stall_s: Optional[float] = None  # the executor's: how long a program may stand still
    stall_action: StallAction = StallAction.WARN


class Program(NamedTuple):
    """Source, environment and folders of the user's command."""

    src: Optional[str] = None  # --src_dir: folder or archive
    venv: Optional[str] = None  # --python_venv: archive or folder, local or remote
    python: Optional[str] = None  # --python_binary_path
    hdfs_classpath: Tuple[str, ...] = ()
    shell_env: Tuple[Tuple[str, str], ...] = ()  # child only
    container_env: Tuple[Tuple[str, str], ...] = ()  # executor and child
    checkpoint_dir: Optional[str] = None
    tensorboard_log_dir: Optional[str] = None
    tensorboard_first: bool = False  # the tracking URL's root leads to TensorBoard
    preemption_signal: str = "off"  # its name: sent when containers are taken back
    preemption_signal_all: bool = False  # to processes that do not handle it, too


class Metrics(NamedTuple):
    """How executors measure tasks, and how much an error quotes."""

    interval_s: float = 5.0
    gpu: bool = True
    gpu_exec_path: Optional[str] = None
    gpu_check: bool = True
    error_lines: int = 20


class Network(NamedTuple):
    """How tasks get their ports and talk to the master."""

    port_range: Optional[Tuple[int, int]] = None  # None: below the ephemeral range
    tls: bool = False


class History(NamedTuple):
    """Where the job's history is written, and which portal shows it."""

    location: Optional[str] = None
    retention_s: float = 30 * 24 * 3600.0
    portal_url: Optional[str] = None
    retention_mb: Optional[int] = None  # None: any size

    def job_page(self, app_id: str) -> str:
        """The page of a job in the portal; empty where the site has none."""
        return f"{self.portal_url.rstrip('/')}/jobs/{app_id}" if self.portal_url else ""


class Mlflow(NamedTuple):
    """The MLflow server where the job is a run; none without an address."""

    tracking_uri: str = ""
    experiment: str = "Default"
    run_name: str = ""  # empty: the job's name
    ca_pem: str = ""  # certificates of authorities
    username: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:  # without the credentials
        return f"Mlflow(tracking_uri={self.tracking_uri!r}, experiment={self.experiment!r})"


class Runtime(NamedTuple):
    """The Python and the place of our own code on nodes."""

    python: str = "python3"
    location: Optional[str] = None


class Limits(NamedTuple):
    """The administrator's caps, checked at submit and again by the master."""

    total_instances: Optional[int] = None
    total: Tuple[Tuple[str, int], ...] = ()  # resource name -> the most over all tasks
    instances: Tuple[Tuple[str, int], ...] = ()  # role -> the most instances
    archive_mb: int = 102_400  # what each archive may unpack to, and how many members
    archive_members: int = 300_000


class Hadoop(NamedTuple):
    """How the job reaches the cluster's Hadoop."""

    location: Optional[str] = None  # tony.application.hadoop.location: an archive of Hadoop
    classpath: Optional[str] = None
    hdfs_conf: Optional[str] = None
    yarn_conf: Optional[str] = None
    mapred_conf: Optional[str] = None
    rm_retries: int = 3
    security: Optional[bool] = None  # None: as the cluster's core-site says
    principal: Optional[str] = None  # whom the client logs in as; None: the user's ticket
    keytab: Optional[str] = None  # by this file
    ship_keytab: bool = False  # to the master, which fetches fresh tokens by it
    refresh: TokenRefresh = TokenRefresh.LEAVE
    keytab_user: Optional[str] = None  # of the JVM TonY's portal
    keytab_location: Optional[str] = None
    namenodes: Tuple[str, ...] = ()  # others to get tokens for


class Local(NamedTuple):
    """How much of this machine the embedded scheduler may allocate. ``None``: what it finds."""

    memory_mb: Optional[int] = None
    vcores: Optional[int] = None
    gpus: Optional[int] = None
    nvidia_smi: Optional[str] = None  # where it is, if not where it usually is


class Yarn(NamedTuple):
    """Settings of YARN alone. ``None``: YARN's default."""

    staging_dir: Optional[str] = None  # instead of .tony in the user's home
    priority: Optional[int] = None
    view_acl: Optional[str] = None  # "user,user group,group"; None: only the owner
    modify_acl: Optional[str] = None


class Access(NamedTuple):
    """What the job's owner may open in its running containers."""

    shell: bool = True
    notebook: bool = True


class Setting(NamedTuple):
    key: str
    value: str
    source: str  # "default", "/path/tony.xml:12", "--conf", ...
    final: bool = False


class Job(NamedTuple):
    name: str
    roles: Tuple[Role, ...]
    framework: str = "tensorflow"
    type: str = "TONY"
    mode: Mode = Mode.GANG
    user: str = ""
    queue: str = "default"
    tags: Tuple[str, ...] = ()
    node_label: Optional[str] = None
    master: MasterSpec = MasterSpec()
    timeouts: Timeouts = Timeouts()
    program: Program = Program()
    files: Tuple[FileRef, ...] = ()  # tony.containers.resources: every task's
    metrics: Metrics = Metrics()
    network: Network = Network()
    history: History = History()
    runtime: Runtime = Runtime()
    scheduler: str = "local"
    placement_spec: Optional[str] = None  # tony.application.placement-spec: the whole application's
    limits: Limits = Limits()
    hadoop: Hadoop = Hadoop()
    local: Local = Local()
    yarn: Yarn = Yarn()
    mlflow: Mlflow = Mlflow()
    fail_on_worker_failure: bool = True
    links: Tuple[Tuple[str, str], ...] = ()  # name -> URL: who submitted it, for its page
    groups: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()  # group name -> roles
    group_dependencies: Tuple[GroupDependency, ...] = ()
    access: Access = Access()
    settings: Tuple[Setting, ...] = ()  # the last: not compared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    def role(self, name: str) -> Role:
        """The role of that name; KeyError if there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    @property
    def chief(self) -> Optional[Tuple[str, int]]:
        """(role, index) of the chief: role ``chief``, else ``worker:0``, else the single task."""
        names = [role.name for role in self.roles]
        for name in ("chief", "worker"):
            if name in names:
                return (name, 0)
        tracked = [role for role in self.roles if role.tracking is Tracking.TRACKED]
        return (tracked[0].name, 0) if len(tracked) == 1 else None

    def stall_timeout(self, role: Role) -> Optional[float]:
        """How long a program of this role may stand still; None: it is not watched."""
        limit = role.stall_s
        if limit is None:
            trains = role.tracking is Tracking.TRACKED and role.name not in WAITING_ROLES
            limit = self.timeouts.stall_s if trains else None
        return limit if limit is not None and limit <= LONGEST_STALL_S else None

    @property
    def tracked_tasks(self) -> int:
        """TASK_NUM: how many tasks are waited for."""
        return sum(r.instances for r in self.roles if r.tracking is Tracking.TRACKED)

    @property
    def shares_addresses(self) -> bool:
        """Whether tasks get each other's addresses: not where thousands start one by one (FCFS)."""
        return self.mode is Mode.GANG or sum(r.instances for r in self.roles) <= MOST_FCFS_ADDRESSES

    def replace(self, **changes: Any) -> Job:
        return self._replace(**changes)

    def setting(self, key: str, default: str = "") -> str:
        """The raw text of a key, for what has no field of its own."""
        for item in self.settings:
            if item.key == key:
                return item.value
        return default
