"""Keys of a site: limits, measuring, history, network, YARN, Hadoop."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind, Off
from tony_core.job.spec import TokenRefresh

_LIMITS = [
    Key("tony.task.max-total-instances", Kind.LIMIT, default="-1", fills="Limits.total_instances",
        doc="The most tasks of a job."),
    Key("tony.task.max-total-<resource>", Kind.LIMIT, default="-1", part_of="Limits.total",
        doc="The most of one resource (memory, vcores, gpus, or another type) over all tasks."),
    Key("tony.task.max-infrastructure-failures", Kind.INT, default="10", at_least=0,
        fills="MasterSpec.infrastructure_retries",
        doc="How many new sessions the system's failures may cost."),
]  # fmt: skip

_MEASURING = [
    Key("tony.task.metrics-interval-ms", Kind.DURATION, default="5000", unit="ms",
        fills="Metrics.interval_s", off=Off.DEFAULT,
        doc="How often executors measure their tasks. Of more than 250 tasks the master hears it"
            " less often (of 1,000: every 20 s)."),
    Key("tony.task.gpu-metrics.enabled", Kind.BOOL, default="true", fills="Metrics.gpu",
        doc="Whether GPUs are measured too: every 10 s at first, every 45 s after two minutes."),
    Key("tony.gpu-exec-path", Kind.TEXT, fills="Metrics.gpu_exec_path",
        doc="Where nvidia-smi is, when not on the PATH."),
    Key("tony.task.gpu-check", Kind.BOOL, default="true", fills="Metrics.gpu_check",
        doc="Whether executors count a task's GPUs (nvidia-smi) before its program starts, and"
            " choose free ones where they are not isolated. Off where GPUs are not NVIDIA's, or"
            " are only counted."),
    Key("tony.task.executor.execution.error-message-max-depth", Kind.INT, default="20", at_least=0,
        fills="Metrics.error_lines",
        doc="How many last lines of a failed task's stderr its error quotes."),
    Key("tony.history.location", Kind.PATH, fills="History.location",
        placeholders=("/path/to/tony-history",),
        doc="Where the stories of jobs are kept; as shared as that folder is, private if it is"
            " new."),
    Key("tony.history.retention-sec", Kind.DURATION, default="30d", unit="s",
        fills="History.retention_s", off=Off.FOREVER,
        doc="How long they are kept: tony gc removes those of jobs that ended before."),
    Key("tony.history.retention-size", Kind.MEMORY, unit="MB", fills="History.retention_mb",
        doc="How large all of them may be. Of more, each user keeps an equal share, and what others"
            " leave of theirs; of who has more tony gc removes the oldest. Default: any size."),
    Key("tony.portal.url", Kind.TEXT, fills="History.portal_url",
        placeholders=("https://localhost:19886",),
        doc="Where the portal is: the job's links then hold its page there."),
]  # fmt: skip

_NETWORK = [
    Key("tony.task.port-range", Kind.PORTS, fills="Network.port_range",
        doc="Where tasks' ports are drawn from; by default below the ephemeral range."),
    Key("tony.task.tls", Kind.BOOL, default="false", fills="Network.tls",
        doc="Whether master and executors talk TLS, by a certificate made for the job by openssl."),
    Key("tony.runtime.python", Kind.TEXT, default="python3", fills="Runtime.python",
        doc="The Python that runs our own code on nodes: a command, a path or an archive."),
    Key("tony.runtime.location", Kind.PATH, fills="Runtime.location",
        doc="Where an administrator has published our own code for all users."),
    Key("tony.local.memory", Kind.MEMORY, unit="MB", fills="Local.memory_mb",
        doc="How much memory the embedded scheduler hands out: by default the machine's."),
    Key("tony.local.vcores", Kind.INT, at_least=1, fills="Local.vcores",
        doc="How many virtual cores the embedded scheduler hands out: by default no limit."),
    Key("tony.local.gpus", Kind.INT, at_least=0, fills="Local.gpus",
        doc="How many GPUs the embedded scheduler hands out: by default those it finds."),
]  # fmt: skip

_YARN = [
    Key("tony.application.priority", Kind.INT, at_least=0, fills="Yarn.priority",
        doc="The application's priority within its queue on YARN: the higher, the earlier. By"
            " default what the queue says."),
    Key("tony.yarn.staging-dir", Kind.PATH, fills="Yarn.staging_dir",
        doc="Where jobs for YARN are staged: a folder of the user's own on the cluster's file"
            " system. By default .tony in the user's home there; where fs.defaultFS is viewfs, by"
            " its mount table."),
    Key("tony.yarn.acl.view", Kind.ACL, fills="Yarn.view_acl",
        doc="Who else may see the application and its logs on YARN: users, a blank, groups, each"
            " separated by commas, or * for all; groups alone begin with the blank. By default only"
            " its owner."),
    Key("tony.yarn.acl.modify", Kind.ACL, fills="Yarn.modify_acl",
        doc="Who else may kill the application on YARN, in the same form."),
]  # fmt: skip

_HADOOP = [
    Key("tony.application.hadoop.location", Kind.PATH, fills="Hadoop.location",
        doc="An archive of Hadoop for tasks on nodes that have none."),
    Key("tony.application.hadoop.classpath", Kind.TEXT, fills="Hadoop.classpath",
        doc="The class path inside that archive."),
    Key("tony.application.hdfs-conf-path", Kind.PATH, fills="Hadoop.hdfs_conf",
        doc="hdfs-site.xml for the tasks."),
    Key("tony.application.yarn-conf-path", Kind.PATH, fills="Hadoop.yarn_conf",
        doc="yarn-site.xml for the tasks."),
    Key("tony.application.mapred-conf-path", Kind.PATH, fills="Hadoop.mapred_conf",
        doc="mapred-site.xml for the tasks."),
    Key("tony.application.num-client-rm-connect-retries", Kind.INT, default="3", at_least=0,
        fills="Hadoop.rm_retries",
        doc="How often the client tries again to reach the ResourceManager."),
    Key("tony.kerberos.principal", Kind.TEXT, fills="Hadoop.principal",
        doc="--principal: the principal that the client logs in as on a cluster with Kerberos, by"
            " tony.kerberos.keytab. By default the user of the ticket cache."),
    Key("tony.kerberos.keytab", Kind.PATH, fills="Hadoop.keytab",
        doc="--keytab: a file of this machine with the keys of tony.kerberos.principal. They leave"
            " it only by tony.kerberos.ship-keytab."),
    Key("tony.kerberos.ship-keytab", Kind.BOOL, default="false", fills="Hadoop.ship_keytab",
        doc="Whether the keys of tony.kerberos.principal travel to the job's master, which then"
            " fetches fresh tokens: the job goes on when its first ones end. Sets tony.task.tls."),
    Key("tony.kerberos.refresh", Kind.CHOICE, default=TokenRefresh.LEAVE.value,
        choices=tuple(one.value for one in TokenRefresh), fills="Hadoop.refresh",
        convert=TokenRefresh,
        doc="What fresh tokens mean to programs that run. leave: import tony reads them anew;"
            " libhdfs and children in Java do not. restart: all start anew from the checkpoint,"
            " before the old tokens end."),
    Key("tony.application.security.enabled", Kind.BOOL, fills="Hadoop.security",
        doc="Whether the cluster asks for Kerberos: by default what core-site.xml says, and what"
            " contradicts it is refused."),
    Key("tony.keytab.user", Kind.TEXT, fills="Hadoop.keytab_user", placeholders=("user", "user1"),
        doc="The portal's login in the JVM TonY, of no effect here; a job's is"
            " tony.kerberos.principal."),
    Key("tony.keytab.location", Kind.TEXT, fills="Hadoop.keytab_location",
        placeholders=("/location/to/tony.keytab", "/path/to/tony.keytab"),
        doc="The portal's keytab in the JVM TonY, of no effect here; a job's is"
            " tony.kerberos.keytab."),
    Key("tony.other.namenodes", Kind.LIST, fills="Hadoop.namenodes",
        doc="More file systems that the program reads, as hdfs://NAME or hdfs://HOST:PORT: on a"
            " cluster with Kerberos the job gets a token for each."),
]  # fmt: skip

_ACCESS = [
    Key("tony.shell.enabled", Kind.BOOL, default="true", fills="Access.shell",
        doc="Whether tony shell may open terminals and run commands beside a job's programs."),
    Key("tony.notebook.enabled", Kind.BOOL, default="true", fills="Access.notebook",
        doc="Whether tony notebook may run Jupyter in a container."),
]  # fmt: skip

KEYS = [*_LIMITS, *_MEASURING, *_NETWORK, *_YARN, *_HADOOP, *_ACCESS]
