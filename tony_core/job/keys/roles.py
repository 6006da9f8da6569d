"""Keys of one role, of all containers, and of the application master."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind, Off
from tony_core.job.spec import RestartMode, RestartScope

_ROLES = [
    Key("tony.<role>.instances", Kind.INT, at_least=0, part_of="Role.instances",
        doc="How many tasks of this role. With no instances of any role the job is one single"
            " task."),
    Key("tony.<role>.memory", Kind.MEMORY, default="2g", unit="MB",
        fills="Role.resources.memory_mb", doc="Memory of one task."),
    Key("tony.<role>.vcores", Kind.INT, default="1", at_least=1, fills="Role.resources.vcores",
        doc="Virtual cores of one task."),
    Key("tony.<role>.gpus", Kind.INT, default="0", at_least=0, fills="Role.resources.gpus",
        doc="GPUs of one task."),
    Key("tony.<role>.resource.<resource>", Kind.INT, at_least=0, part_of="Role.resources.other",
        doc="How much of another resource type of the cluster one task needs."),
    Key("tony.<role>.resources", Kind.FILES, part_of="Role.files",
        doc="Files of this role: source[::name][#archive]."),
    Key("tony.<role>.command", Kind.TEXT, part_of="Role.command",
        doc="What each task of this role runs, in a shell. Else tony.containers.command, else"
            " --executes with --task_params."),
    Key("tony.<role>.node-label", Kind.TEXT, fills="Role.node_label",
        otherwise="tony.containers.node-label",
        doc="The partition of the cluster that this role runs in."),
    Key("tony.<role>.depends-on", Kind.ROLES, part_of="Role.depends_on",
        doc="Roles that must have succeeded before the master requests containers for this role."),
    Key("tony.<role>.placement-spec", Kind.TEXT, fills="Role.placement_spec",
        otherwise="tony.containers.placement-spec", doc="YARN placement constraint of this role."),
    Key("tony.<role>.allocation-tags", Kind.LIST, fills="Role.allocation_tags",
        otherwise="tony.containers.allocation-tags",
        doc="YARN allocation tags of this role's containers."),
    Key("tony.<role>.max-restarts", Kind.INT, default="3", at_least=0, fills="Role.max_restarts",
        doc="How often a task of this role is restarted while the others go on: a sidecar's, or"
            " one with restart-scope task, whose count starts again in each session."),
    Key("tony.<role>.max-instances", Kind.LIMIT, default="-1", part_of="Limits.instances",
        doc="The administrator's cap on the instances of this role."),
    Key("tony.<role>.min-instances", Kind.INT, at_least=1, fills="Role.min_instances",
        doc="The fewest tasks of an elastic role: the job begins and goes on with so many, and"
            " asks for the rest meanwhile. Not set: all instances."),
    Key("tony.<role>.restart-scope", Kind.CHOICE, default="session", choices=("session", "task"),
        fills="Role.restart_scope", convert=RestartScope,
        doc="What is restarted when a task of this role fails: the session, or only the task"
            " while the others' programs go on. What cannot take a task back is refused."),
    Key("tony.<role>.stall-timeout", Kind.DURATION, unit="s", fills="Role.stall_s",
        off=Off.FOREVER,
        doc="tony.task.stall-timeout of this role alone, for any role: 1s or more, or off (0, -1),"
            " with which its tasks are not watched. Not set: as tony.task.stall-timeout says."),
]  # fmt: skip

_CONTAINERS = [
    Key("tony.containers.command", Kind.TEXT, part_of="Role.command",
        doc="What the tasks of every role without a command of its own run."),
    Key("tony.containers.resources", Kind.FILES, fills="Job.files",
        doc="Files of every task: source[::name][#archive]. --conf adds to it."),
    Key("tony.containers.archive-max-size", Kind.MEMORY, default="100g", unit="MB", at_least=1,
        fills="Limits.archive_mb",
        doc="What the files of one archive may take once unpacked; a larger one is refused. On"
            " YARN, NodeManagers unpack archives that the job names on the cluster, without this"
            " limit."),
    Key("tony.containers.archive-max-members", Kind.INT, default="300000", at_least=1,
        fills="Limits.archive_members",
        doc="How many files, folders and links one archive may hold; with more it is refused."),
    Key("tony.containers.envs", Kind.ENVS, part_of="Program.container_env",
        doc="Environment of the executor and of the program. --conf adds to it."),
    Key("tony.containers.env.<any>", Kind.RAW, part_of="Program.container_env",
        doc="One variable of the executor's and the program's environment, whatever is in it."),
    Key("tony.execution.envs", Kind.ENVS, part_of="Program.shell_env",
        doc="Environment of the program only. --conf adds to it."),
    Key("tony.execution.env.<any>", Kind.RAW, part_of="Program.shell_env",
        doc="One variable of the program's environment, whatever is in it."),
    Key("tony.containers.node-label", Kind.TEXT, part_of="Role.node_label",
        doc="The partition of every role without a label of its own."),
    Key("tony.containers.placement-spec", Kind.TEXT, part_of="Role.placement_spec",
        doc="Placement constraint of every role without one of its own."),
    Key("tony.containers.allocation-tags", Kind.LIST, part_of="Role.allocation_tags",
        doc="Allocation tags of every role without its own."),
    Key("tony.docker.enabled", Kind.BOOL, default="false", part_of="Role.docker",
        doc="Whether tasks run in docker images."),
    Key("tony.docker.containers.image", Kind.TEXT, part_of="Role.docker.image",
        doc="The image of every role without its own."),
    Key("tony.docker.<role>.image", Kind.TEXT, part_of="Role.docker.image",
        otherwise="tony.docker.containers.image", doc="The image of one role."),
    Key("tony.docker.am.image", Kind.TEXT, part_of="MasterSpec.docker",
        doc="The image of the application master, which else runs in none."),
    Key("tony.docker.containers.mount", Kind.LIST, part_of="Role.docker.mounts",
        doc="Folders of the host seen in the image: source:destination[:ro|rw]."),
]  # fmt: skip

_MASTER = [
    Key("tony.am.memory", Kind.MEMORY, default="512m", unit="MB",
        fills="MasterSpec.resources.memory_mb",
        doc="Memory of the application master; of the task itself when the job is one single"
            " task."),
    Key("tony.am.vcores", Kind.INT, default="1", at_least=1, fills="MasterSpec.resources.vcores",
        doc="Virtual cores of the application master."),
    Key("tony.am.gpus", Kind.INT, default="0", at_least=0, fills="MasterSpec.resources.gpus",
        doc="GPUs of the application master."),
    Key("tony.am.node-label", Kind.TEXT, fills="MasterSpec.node_label",
        doc="The partition that the application master runs in."),
    Key("tony.am.resources", Kind.FILES, fills="MasterSpec.files",
        doc="Files of the application master (its preprocessing command)."),
    Key("tony.am.command", Kind.TEXT, part_of="MasterSpec.preprocess",
        doc="What runs once before the tasks when tony.application.enable-preprocess is on; the"
            " single task's command when there are no instances."),
    Key("tony.am.retry-count", Kind.INT, default="2", at_least=0, fills="MasterSpec.user_retries",
        doc="How many new sessions the failures of the user's program may cost."),
    Key("tony.am.max-attempts", Kind.INT, default="2", at_least=1, fills="MasterSpec.max_attempts",
        doc="How many application masters a job may have."),
    Key("tony.am.startup-timeout", Kind.DURATION, default="10m", unit="s",
        fills="MasterSpec.startup_timeout_s", off=Off.DEFAULT,
        doc="How long an application master may take from its start to its registration with the"
            " scheduler. What a cluster needs to bring its files is not counted: that has to fit"
            " into yarn.am.liveness-monitor.expiry-interval-ms."),
    Key("tony.am.restart-mode", Kind.CHOICE, default="warm", choices=("warm", "fresh"),
        fills="MasterSpec.restart_mode", convert=RestartMode,
        doc="What a new session keeps: warm keeps healthy containers, fresh keeps none."),
]  # fmt: skip

KEYS = [*_ROLES, *_CONTAINERS, *_MASTER]
