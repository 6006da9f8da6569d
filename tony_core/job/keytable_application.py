"""Keys of the application as a whole: what it is, who decides its end, and every deadline."""

from __future__ import annotations

from tony_core.job.key_types import Key, Kind, Off
from tony_core.job.mask import mask_text
from tony_core.job.spec import Mode

_IDENTITY = [
    Key(
        "tony.application.name",
        Kind.TEXT,
        "What the job is called.",
        default="TonyApplication",
        fills="Job.name",
        convert=mask_text,
    ),
    Key(
        "tony.application.type",
        Kind.TEXT,
        "The application type that YARN shows.",
        default="TONY",
        fills="Job.type",
    ),
    Key("tony.application.tags", Kind.LIST, "Tags that YARN shows.", fills="Job.tags"),
    Key(
        "tony.application.links",
        Kind.ENVS,
        "Links on the job's page and in its history beside its own, as NAME=URL: a"
        " workflow's execution, an experiment.",
        part_of="Job.links",
    ),
    Key(
        "tony.application.framework",
        Kind.TEXT,
        "The framework whose cluster description the tasks get: tensorflow, pytorch, jax, mpi,"
        " standalone and others.",
        default="tensorflow",
        fills="Job.framework",
        convert=str.lower,
    ),
    Key(
        "tony.application.distributed-mode",
        Kind.CHOICE,
        "GANG starts all tasks together, FCFS each as soon as it can be.",
        default="GANG",
        choices=("GANG", "FCFS"),
        fills="Job.mode",
        convert=Mode,
    ),
    Key("tony.yarn.queue", Kind.TEXT, "The queue.", default="default", fills="Job.queue"),
    Key(
        "tony.application.node-label",
        Kind.TEXT,
        "The partition of the whole application.",
        fills="Job.node_label",
    ),
    Key(
        "tony.application.placement-spec",
        Kind.TEXT,
        "Placement constraint of the whole application.",
        fills="Job.placement_spec",
    ),
    Key(
        "tony.scheduler",
        Kind.TEXT,
        "Where the job runs: local, yarn, or a scheduler that is installed.",
        default="local",
        fills="Job.scheduler",
        convert=str.lower,
    ),
    Key(
        "tony.application.enable-preprocess",
        Kind.BOOL,
        "Whether a command runs once, first, whose result reaches every task as MODEL_PARAMS.",
        default="false",
        part_of="MasterSpec.preprocess",
    ),
    Key(
        "tony.application.checkpoint-dir",
        Kind.PATH,
        "Where the program keeps its checkpoints; tasks see it as TONY_CHECKPOINT_DIR.",
        fills="Program.checkpoint_dir",
    ),
    Key(
        "tony.application.tensorboard-log-dir",
        Kind.PATH,
        "Where the program writes TensorBoard's events. Naming it starts TensorBoard.",
        fills="Program.tensorboard_log_dir",
    ),
    Key(
        "tony.application.tensorboard-first",
        Kind.BOOL,
        "Whether the tracking URL leads to TensorBoard instead of the job's own page.",
        default="false",
        fills="Program.tensorboard_first",
    ),
]

_COMMAND_LINE = [
    Key("tony.client.executes", Kind.TEXT, "--executes: the command.", part_of="Role.command"),
    Key(
        "tony.client.task-params",
        Kind.TEXT,
        "--task_params: put behind --executes.",
        part_of="Role.command",
    ),
    Key(
        "tony.client.src-dir",
        Kind.PATH,
        "--src_dir: the program's folder, zip or tar.",
        fills="Program.src",
    ),
    Key(
        "tony.client.python-venv",
        Kind.PATH,
        "--python_venv: a virtual environment, folder or archive, seen as the folder venv.",
        fills="Program.venv",
    ),
    Key(
        "tony.client.python-binary-path",
        Kind.TEXT,
        "--python_binary_path: the program's Python, absolute or inside the venv.",
        part_of="Program.python",
    ),
    Key(
        "tony.client.hdfs-classpath",
        Kind.LIST,
        "--hdfs_classpath: folders and jars for the tasks; a missing one is skipped.",
        fills="Program.hdfs_classpath",
    ),
    Key(
        "tony.python-exec-path",
        Kind.TEXT,
        "The program's Python as a task sees it, when --python_binary_path names none.",
        part_of="Program.python",
    ),
    Key(
        "tony.client.lease",
        Kind.DURATION,
        "The job ends when no client has contacted it for this long.",
        default="off",
        unit="s",
        fills="Timeouts.client_lease_s",
    ),
    Key(
        "tony.client.first-lease",
        Kind.DURATION,
        "The lease until a client contacts it for the first time, counted from the first"
        " master's start, where it is shorter than `tony.client.lease`.",
        default="off",
        unit="s",
        fills="Timeouts.client_first_lease_s",
    ),
]

_THE_END = [
    Key(
        "tony.application.untracked.jobtypes",
        Kind.ROLES,
        "Roles that are not waited for, and whose failure is fatal. With the framework mxnet, by"
        " default scheduler and server, too.",
        default="ps",
        part_of="Role.tracking",
    ),
    Key(
        "tony.application.sidecar.jobtypes",
        Kind.ROLES,
        "Roles that are not waited for, and whose failure is ignored.",
        default="tensorboard",
        part_of="Role.tracking",
    ),
    Key(
        "tony.application.stop-on-failure-jobtypes",
        Kind.ROLES,
        "Roles whose failure is fatal even where a worker's is not.",
        default="ps",
        part_of="Role.stop_on_failure",
    ),
    Key(
        "tony.application.fail-on-worker-failure-enabled",
        Kind.BOOL,
        "Whether any tracked task's failure fails the session. With false only the chief's, a"
        " stop-on-failure or untracked role's, or that of all tracked tasks does.",
        default="true",
        fills="Job.fail_on_worker_failure",
    ),
    Key(
        "tony.application.group.<group>",
        Kind.ROLES,
        "A named group of roles.",
        part_of="Job.groups",
    ),
    Key(
        "tony.application.dependency.<role>.timeout.after.<group>",
        Kind.DURATION,
        "How long this role may go on once every task of the group has ended.",
        unit="s",
        part_of="GroupDependency.timeout_s",
    ),
    Key(
        "tony.application.dependency.<role>.timeout.after.<group>.ignored",
        Kind.BOOL,
        "Whether the job then stops waiting for the role instead of failing: its tasks run until"
        " the others end, and their failures still count.",
        default="false",
        part_of="GroupDependency.ignored",
    ),
    Key(
        "tony.application.prepare-stage",
        Kind.ROLES,
        "Roles that run before those of the training stage.",
        part_of="Role.depends_on",
    ),
    Key(
        "tony.application.training-stage",
        Kind.ROLES,
        "Roles that run after the prepare stage; all the others when not named.",
        part_of="Role.depends_on",
    ),
]

_TIME = [
    Key(
        "tony.application.timeout",
        Kind.DURATION,
        "How long the whole job may take.",
        default="off",
        unit="ms",
        fills="Timeouts.application_s",
    ),
    Key(
        "tony.application.chief-grace",
        Kind.DURATION,
        "How long the others may go on once the chief has succeeded.",
        default="60s",
        unit="s",
        fills="Timeouts.chief_grace_s",
        off=Off.ZERO,
    ),
    Key(
        "tony.application.elastic-interval",
        Kind.DURATION,
        "How long a round of an elastic role lasts at least before more tasks are taken in.",
        default="30s",
        unit="s",
        fills="Timeouts.elastic_interval_s",
        off=Off.ZERO,
    ),
    Key(
        "tony.container.allocation.timeout",
        Kind.DURATION,
        "How long a job may hold some of its containers and not all.",
        default="15m",
        unit="ms",
        fills="Timeouts.allocation_s",
        off=Off.DEFAULT,
    ),
    Key(
        "tony.container.registration.timeout",
        Kind.DURATION,
        "How long a started container may take to register.",
        default="5m",
        unit="ms",
        fills="Timeouts.registration_s",
        off=Off.DEFAULT,
    ),
    Key(
        "tony.task.executor.registry-timeout-sec",
        Kind.DURATION,
        "How long an executor, once the master has welcomed it, waits for its task, and"
        " then may take to prepare it. For the rest of the gang the master waits"
        " (tony.container.allocation.timeout, tony.container.registration.timeout).",
        default="300",
        unit="s",
        fills="Timeouts.registry_s",
        off=Off.DEFAULT,
    ),
    Key(
        "tony.task.executor.execution-timeout-ms",
        Kind.DURATION,
        "How long the program of one task may run.",
        default="off",
        unit="ms",
        fills="Timeouts.execution_s",
    ),
    Key(
        "tony.task.heartbeat-interval-ms",
        Kind.DURATION,
        "How often executors send a heartbeat.",
        default="1000",
        unit="ms",
        fills="Timeouts.heartbeat_s",
        off=Off.DEFAULT,
    ),
    Key(
        "tony.task.max-missed-heartbeats",
        Kind.INT,
        "How many missing heartbeats make a task, or for its executor the master, lost.",
        default="25",
        at_least=1,
        fills="Timeouts.max_missed_heartbeats",
    ),
    Key(
        "tony.task.master-lost-timeout",
        Kind.DURATION,
        "How long tasks go on without a master: by default 20m, on the local scheduler 30s."
        " It begins when a dead master's connection closes; for one that hangs, after"
        " max-missed-heartbeats x heartbeat-interval of silence.",
        unit="s",
        fills="Timeouts.master_lost_s",
    ),
    Key(
        "tony.task.kill-grace",
        Kind.DURATION,
        "How long a task has between TERM and KILL when the job is killed.",
        default="10s",
        unit="s",
        fills="Timeouts.kill_grace_s",
        off=Off.ZERO,
    ),
]

KEYS = [*_IDENTITY, *_COMMAND_LINE, *_THE_END, *_TIME]
