"""Keys of the application as a whole: what it is, how it is submitted, who decides its end."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind
from tony_core.job.mask import mask_text
from tony_core.job.spec import Mode

_IDENTITY = [
    Key("tony.application.name", Kind.TEXT, default="TonyApplication", fills="Job.name",
        convert=mask_text, doc="What the job is called."),
    Key("tony.application.type", Kind.TEXT, default="TONY", fills="Job.type",
        doc="The application type that YARN shows."),
    Key("tony.application.tags", Kind.LIST, fills="Job.tags",
        doc="Tags that YARN shows. The portal finds jobs by them, and follows those of one over"
        " time."),
    Key("tony.application.links", Kind.ENVS, part_of="Job.links",
        doc="Links on the job's page and in its history beside its own, as NAME=URL: a workflow's"
            " execution, an experiment."),
    Key("tony.application.framework", Kind.TEXT, default="tensorflow", fills="Job.framework",
        convert=str.lower,
        doc="The framework whose cluster description the tasks get: tensorflow, pytorch, jax,"
            " mpi, standalone and others."),
    Key("tony.application.distributed-mode", Kind.CHOICE, default="GANG", choices=("GANG", "FCFS"),
        fills="Job.mode", convert=Mode,
        doc="GANG starts all tasks together, FCFS each as soon as it can be."),
    Key("tony.yarn.queue", Kind.TEXT, default="default", fills="Job.queue", doc="The queue."),
    Key("tony.application.node-label", Kind.TEXT, fills="Job.node_label",
        doc="The partition of the whole application."),
    Key("tony.application.placement-spec", Kind.TEXT, fills="Job.placement_spec",
        doc="Placement constraint of the whole application."),
    Key("tony.scheduler", Kind.TEXT, default="local", fills="Job.scheduler", convert=str.lower,
        doc="Where the job runs: local, yarn, or a scheduler that is installed."),
    Key("tony.application.enable-preprocess", Kind.BOOL, default="false",
        part_of="MasterSpec.preprocess",
        doc="Whether a command runs once, first, whose result reaches every task as MODEL_PARAMS."),
    Key("tony.application.checkpoint-dir", Kind.PATH, fills="Program.checkpoint_dir",
        doc="Where the program keeps its checkpoints; tasks see it as TONY_CHECKPOINT_DIR."),
    Key("tony.application.tensorboard-log-dir", Kind.PATH, fills="Program.tensorboard_log_dir",
        doc="Where the program writes TensorBoard's events. Naming it starts TensorBoard."),
    Key("tony.application.tensorboard-first", Kind.BOOL, default="false",
        fills="Program.tensorboard_first",
        doc="Whether the tracking URL leads to TensorBoard instead of the job's own page."),
    Key("tony.task.preemption-signal", Kind.CHOICE, default="off",
        choices=("off", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP"),
        fills="Program.preemption_signal",
        doc="The signal that programs get when the scheduler is about to take their containers"
            " back: sent to those processes only that handle it. import tony needs none."),
    Key("tony.task.preemption-signal-all", Kind.BOOL, default="false",
        fills="Program.preemption_signal_all",
        doc="Whether every process of the program gets that signal. It ends those that do not"
            " handle it."),
]  # fmt: skip

_COMMAND_LINE = [
    Key("tony.client.executes", Kind.TEXT, part_of="Role.command", doc="--executes: the command."),
    Key("tony.client.task-params", Kind.TEXT, part_of="Role.command",
        doc="--task_params: put behind --executes."),
    Key("tony.client.src-dir", Kind.PATH, fills="Program.src",
        doc="--src_dir: the program's folder, zip or tar."),
    Key("tony.client.python-venv", Kind.PATH, fills="Program.venv",
        doc="--python_venv: a virtual environment, folder or archive, seen as the folder venv."),
    Key("tony.client.python-binary-path", Kind.TEXT, part_of="Program.python",
        doc="--python_binary_path: the program's Python, absolute or inside the venv."),
    Key("tony.client.hdfs-classpath", Kind.LIST, fills="Program.hdfs_classpath",
        doc="--hdfs_classpath: folders and jars for the tasks; a missing one is skipped."),
    Key("tony.python-exec-path", Kind.TEXT, part_of="Program.python",
        doc="The program's Python as a task sees it, when --python_binary_path names none."),
    Key("tony.client.lease", Kind.DURATION, default="off", unit="s",
        fills="Timeouts.client_lease_s",
        doc="The job ends when no client that waits for it has contacted it for this long: tony"
            " submit, attach, shell and notebook, Python's wait, the tasks of Airflow and Azkaban."
            " Looks at it do not count: tony status, logs, `Run.view`, Airflow's sensors, the page,"
            " the portal, Prometheus."),
    Key("tony.client.first-lease", Kind.DURATION, default="off", unit="s",
        fills="Timeouts.client_first_lease_s",
        doc="The lease until a client contacts it for the first time, counted from the first"
            " master's start, where it is shorter than `tony.client.lease`."),
]  # fmt: skip

_COMPLETION = [
    Key("tony.application.untracked.jobtypes", Kind.ROLES, default="ps", part_of="Role.tracking",
        doc="Roles that are not waited for, and whose failure is fatal. With the framework mxnet,"
            " by default scheduler and server, too."),
    Key("tony.application.sidecar.jobtypes", Kind.ROLES, default="tensorboard",
        part_of="Role.tracking",
        doc="Roles that are not waited for, and whose failure is ignored."),
    Key("tony.application.stop-on-failure-jobtypes", Kind.ROLES, default="ps",
        part_of="Role.stop_on_failure",
        doc="Roles whose failure is fatal even where a worker's is not."),
    Key("tony.application.fail-on-worker-failure-enabled", Kind.BOOL, default="true",
        fills="Job.fail_on_worker_failure",
        doc="Whether any tracked task's failure fails the session. With false only the chief's, a"
            " stop-on-failure or untracked role's, or that of all tracked tasks does."),
    Key("tony.application.group.<group>", Kind.ROLES, part_of="Job.groups",
        doc="A named group of roles."),
    Key("tony.application.dependency.<role>.timeout.after.<group>", Kind.DURATION, unit="s",
        part_of="GroupDependency.timeout_s",
        doc="How long this role may go on once every task of the group has ended."),
    Key("tony.application.dependency.<role>.timeout.after.<group>.ignored", Kind.BOOL,
        default="false", part_of="GroupDependency.ignored",
        doc="Whether the job then stops waiting for the role instead of failing: its tasks run"
            " until the others end, and their failures still count."),
    Key("tony.application.prepare-stage", Kind.ROLES, part_of="Role.depends_on",
        doc="Roles that run before those of the training stage."),
    Key("tony.application.training-stage", Kind.ROLES, part_of="Role.depends_on",
        doc="Roles that run after the prepare stage; all the others when not named."),
]  # fmt: skip

KEYS = [*_IDENTITY, *_COMMAND_LINE, *_COMPLETION]
