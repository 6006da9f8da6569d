"""Keys of one role, of all containers, and of the application master."""

from __future__ import annotations

from tony_core.job.key_types import Key, Kind, Off
from tony_core.job.spec import RestartMode, RestartScope

_ROLES = [
    Key(
        "tony.<role>.instances",
        Kind.INT,
        "How many tasks of this role. With no instances of any role the job is one single task.",
        at_least=0,
        part_of="Role.instances",
    ),
    Key(
        "tony.<role>.memory",
        Kind.MEMORY,
        "Memory of one task.",
        default="2g",
        unit="MB",
        fills="Role.resources.memory_mb",
    ),
    Key(
        "tony.<role>.vcores",
        Kind.INT,
        "Virtual cores of one task.",
        default="1",
        at_least=1,
        fills="Role.resources.vcores",
    ),
    Key(
        "tony.<role>.gpus",
        Kind.INT,
        "GPUs of one task.",
        default="0",
        at_least=0,
        fills="Role.resources.gpus",
    ),
    Key(
        "tony.<role>.resource.<resource>",
        Kind.INT,
        "How much of another resource type of the cluster one task needs.",
        at_least=0,
        part_of="Role.resources.other",
    ),
    Key(
        "tony.<role>.resources",
        Kind.FILES,
        "Files of this role: source[::name][#archive].",
        part_of="Role.files",
    ),
    Key(
        "tony.<role>.command",
        Kind.TEXT,
        "What each task of this role runs, in a shell. Else tony.containers.command, else"
        " --executes with --task_params.",
        part_of="Role.command",
    ),
    Key(
        "tony.<role>.node-label",
        Kind.TEXT,
        "The partition of the cluster that this role runs in.",
        fills="Role.node_label",
        otherwise="tony.containers.node-label",
    ),
    Key(
        "tony.<role>.depends-on",
        Kind.ROLES,
        "Roles that must have succeeded before the master requests containers for this role.",
        part_of="Role.depends_on",
    ),
    Key(
        "tony.<role>.placement-spec",
        Kind.TEXT,
        "YARN placement constraint of this role.",
        fills="Role.placement_spec",
        otherwise="tony.containers.placement-spec",
    ),
    Key(
        "tony.<role>.allocation-tags",
        Kind.LIST,
        "YARN allocation tags of this role's containers.",
        fills="Role.allocation_tags",
        otherwise="tony.containers.allocation-tags",
    ),
    Key(
        "tony.<role>.max-restarts",
        Kind.INT,
        "How often a task of this role is restarted while the others go on: a sidecar's, or one"
        " with restart-scope task, whose count starts again in each session.",
        default="3",
        at_least=0,
        fills="Role.max_restarts",
    ),
    Key(
        "tony.<role>.max-instances",
        Kind.LIMIT,
        "The administrator's cap on the instances of this role.",
        default="-1",
        part_of="Limits.instances",
    ),
    Key(
        "tony.<role>.min-instances",
        Kind.INT,
        "The fewest tasks of an elastic role: the job begins and goes on with so many, and asks"
        " for the rest meanwhile. Not set: all instances.",
        at_least=1,
        fills="Role.min_instances",
    ),
    Key(
        "tony.<role>.restart-scope",
        Kind.CHOICE,
        "What is restarted when a task of this role fails: the session, or only the task while"
        " the others' programs go on. What cannot take a task back is refused.",
        default="session",
        choices=("session", "task"),
        fills="Role.restart_scope",
        convert=RestartScope,
    ),
]

_CONTAINERS = [
    Key(
        "tony.containers.command",
        Kind.TEXT,
        "What the tasks of every role without a command of its own run.",
        part_of="Role.command",
    ),
    Key(
        "tony.containers.resources",
        Kind.FILES,
        "Files of every task: source[::name][#archive]. --conf adds to it.",
        fills="Job.files",
    ),
    Key(
        "tony.containers.archive-max-size",
        Kind.MEMORY,
        "What the files of one archive may take once unpacked; a larger one is refused. On YARN,"
        " NodeManagers unpack archives that the job names on the cluster, without this limit.",
        default="100g",
        unit="MB",
        at_least=1,
        fills="Limits.archive_mb",
    ),
    Key(
        "tony.containers.archive-max-members",
        Kind.INT,
        "How many files, folders and links one archive may hold; with more it is refused.",
        default="300000",
        at_least=1,
        fills="Limits.archive_members",
    ),
    Key(
        "tony.containers.envs",
        Kind.ENVS,
        "Environment of the executor and of the program. --conf adds to it.",
        part_of="Program.container_env",
    ),
    Key(
        "tony.containers.env.<any>",
        Kind.RAW,
        "One variable of the executor's and the program's environment, whatever is in it.",
        part_of="Program.container_env",
    ),
    Key(
        "tony.execution.envs",
        Kind.ENVS,
        "Environment of the program only. --conf adds to it.",
        part_of="Program.shell_env",
    ),
    Key(
        "tony.execution.env.<any>",
        Kind.RAW,
        "One variable of the program's environment, whatever is in it.",
        part_of="Program.shell_env",
    ),
    Key(
        "tony.containers.node-label",
        Kind.TEXT,
        "The partition of every role without a label of its own.",
        part_of="Role.node_label",
    ),
    Key(
        "tony.containers.placement-spec",
        Kind.TEXT,
        "Placement constraint of every role without one of its own.",
        part_of="Role.placement_spec",
    ),
    Key(
        "tony.containers.allocation-tags",
        Kind.LIST,
        "Allocation tags of every role without its own.",
        part_of="Role.allocation_tags",
    ),
    Key(
        "tony.docker.enabled",
        Kind.BOOL,
        "Whether tasks run in docker images.",
        default="false",
        part_of="Role.docker",
    ),
    Key(
        "tony.docker.containers.image",
        Kind.TEXT,
        "The image of every role without its own.",
        part_of="Role.docker.image",
    ),
    Key(
        "tony.docker.<role>.image",
        Kind.TEXT,
        "The image of one role.",
        part_of="Role.docker.image",
        otherwise="tony.docker.containers.image",
    ),
    Key(
        "tony.docker.am.image",
        Kind.TEXT,
        "The image of the application master, which else runs in none.",
        part_of="MasterSpec.docker",
    ),
    Key(
        "tony.docker.containers.mount",
        Kind.LIST,
        "Folders of the host seen in the image: source:destination[:ro|rw].",
        part_of="Role.docker.mounts",
    ),
]

_MASTER = [
    Key(
        "tony.am.memory",
        Kind.MEMORY,
        "Memory of the application master; of the task itself when the job is one single task.",
        default="512m",
        unit="MB",
        fills="MasterSpec.resources.memory_mb",
    ),
    Key(
        "tony.am.vcores",
        Kind.INT,
        "Virtual cores of the application master.",
        default="1",
        at_least=1,
        fills="MasterSpec.resources.vcores",
    ),
    Key(
        "tony.am.gpus",
        Kind.INT,
        "GPUs of the application master.",
        default="0",
        at_least=0,
        fills="MasterSpec.resources.gpus",
    ),
    Key(
        "tony.am.node-label",
        Kind.TEXT,
        "The partition that the application master runs in.",
        fills="MasterSpec.node_label",
    ),
    Key(
        "tony.am.resources",
        Kind.FILES,
        "Files of the application master (its preprocessing command).",
        fills="MasterSpec.files",
    ),
    Key(
        "tony.am.command",
        Kind.TEXT,
        "What runs once before the tasks when tony.application.enable-preprocess is on; the"
        " single task's command when there are no instances.",
        part_of="MasterSpec.preprocess",
    ),
    Key(
        "tony.am.retry-count",
        Kind.INT,
        "How many new sessions the failures of the user's program may cost.",
        default="2",
        at_least=0,
        fills="MasterSpec.user_retries",
    ),
    Key(
        "tony.am.max-attempts",
        Kind.INT,
        "How many application masters a job may have.",
        default="2",
        at_least=1,
        fills="MasterSpec.max_attempts",
    ),
    Key(
        "tony.am.startup-timeout",
        Kind.DURATION,
        "How long an application master may take from its start to its registration with the"
        " scheduler. What a cluster needs to bring its files is not counted: that has to fit into"
        " yarn.am.liveness-monitor.expiry-interval-ms.",
        default="10m",
        unit="s",
        fills="MasterSpec.startup_timeout_s",
        off=Off.DEFAULT,
    ),
    Key(
        "tony.am.restart-mode",
        Kind.CHOICE,
        "What a new session keeps: warm keeps healthy containers, fresh keeps none.",
        default="warm",
        choices=("warm", "fresh"),
        fills="MasterSpec.restart_mode",
        convert=RestartMode,
    ),
]

KEYS = [*_ROLES, *_CONTAINERS, *_MASTER]
