"""The DAG files of the tests, as source: Airflow's own processes read them."""

from __future__ import annotations

TRAININGS = '''
"""One task each, in all the ways of waiting; what a run trains stands in its conf."""

from datetime import timedelta

from airflow.sdk import DAG
from tony_airflow.operators.tony import TonyOperator

CONF = {"tony.am.memory": "256", "tony.am.retry-count": 0, "tony.task.kill-grace": "1"}


def training(dag_id, **more):
    with DAG(dag_id, schedule=None, max_active_runs=100):
        TonyOperator(
            task_id="train",
            job_name="{{ run_id }}",
            src_dir="{{ dag_run.conf['src'] }}",
            executes="python3 train.py {{ dag_run.conf['folder'] }}",
            roles={"worker": {"instances": 1, "memory": "64m"}},
            conf={**CONF, **more.pop("conf", {})},
            poll_interval=1,
            **more,
        )


RETRIED = {"retries": 2, "retry_delay": timedelta(seconds=1)}
TIMED = {"execution_timeout": timedelta(seconds=60)}
LEASED = {"lease": 60}
KILLED = {"retries": 6, "retry_delay": timedelta(seconds=5)}

for how, deferrable in (("sync", False), ("deferred", True)):
    training(how, deferrable=deferrable)
    training(f"{how}_retried", deferrable=deferrable, **RETRIED)
    training(f"{how}_timed", deferrable=deferrable, **TIMED)
    training(f"{how}_leased", deferrable=deferrable, **LEASED)
    training(f"{how}_killed", deferrable=deferrable, **KILLED)
'''
"""``sync``, ``deferred``, and each of them ``_retried``, ``_timed``, ``_leased`` or ``_killed``."""

HOPELESS = '''
"""What retrying cannot mend; retries are there all the same."""

from datetime import timedelta

from airflow.sdk import DAG
from tony_airflow.operators.tony import TonyOperator

SAID = {
    "task_id": "train",
    "job_name": "{{ run_id }}",
    "executes": "python3 train.py",
    "retries": 2,
    "retry_delay": timedelta(seconds=1),
}
WRONG = {
    "no_connection": {"tony_conn_id": "unknown_connection"},
    "no_venv": {"python_venv": "/nowhere/venv"},
    "no_source": {"src_dir": "/nowhere/src"},
    "bad_key": {"conf": {"tony.worker.memory": "plenty"}},
}
for name, more in WRONG.items():
    with DAG(name, schedule=None):
        TonyOperator(**SAID, **more)
'''

SHOWN = '''
"""A training with a TensorBoard beside it."""

from airflow.sdk import DAG
from tony_airflow.operators.tony import TonyOperator

PORTAL = {"tony.portal.url": "http://portal.example"}

for how, deferrable, more in (("shown", False, {}), ("shown_deferred", True, PORTAL)):
    with DAG(how, schedule=None):
        TonyOperator(
            task_id="train",
            job_name="{{ run_id }}",
            src_dir="{{ dag_run.conf['src'] }}",
            executes="python3 train.py {{ dag_run.conf['folder'] }}",
            framework="mpi",
            tensorboard_log_dir="{{ dag_run.conf['events'] }}",
            env={"PATH": "{{ dag_run.conf['bin'] }}:/usr/bin:/bin"},
            roles={"worker": {"instances": 1, "memory": "64m"}},
            conf={"tony.am.memory": "256", "tony.task.kill-grace": "1", **more},
            poll_interval=1,
            deferrable=deferrable,
        )
'''

SECRETS = '''
"""A job that gets a secret, and prints it where it fails."""

from airflow.sdk import DAG
from tony_airflow.operators.tony import TonyOperator

for how, deferrable in (("tells", False), ("tells_deferred", True)):
    with DAG(how, schedule=None):
        TonyOperator(
            task_id="train",
            job_name="{{ run_id }}",
            executes="sh -c 'echo the token is $API_TOKEN >&2; exit 3'",
            env={"API_TOKEN": "{{ dag_run.conf['secret'] }}"},
            roles={"worker": {"instances": 1, "memory": "64m"}},
            conf={"tony.am.memory": "256", "tony.am.retry-count": 0},
            poll_interval=1,
            deferrable=deferrable,
        )
'''

KERBEROS = '''
"""Trainings for users, by a service's keytab or a ticket of airflow kerberos; and thefts of it."""

from airflow.sdk import DAG, task
from tony_airflow.operators.tony import TonyOperator

CONF = {"tony.am.memory": "256", "tony.am.retry-count": 0, "tony.task.kill-grace": "1"}


def training(dag_id, **more):
    with DAG(dag_id, schedule=None, max_active_runs=100):
        TonyOperator(
            task_id="train",
            job_name="{{ run_id }}",
            src_dir="{{ dag_run.conf['src'] }}",
            executes="python3 train.py {{ dag_run.conf['folder'] }}",
            roles={"worker": {"instances": 1, "memory": "64m"}},
            conf={**CONF, **more.pop("conf", {})},
            poll_interval=1,
            **more,
        )


USER = {"tony_conn_id": "gateway", "proxy_user": "{{ dag_run.conf['user'] }}"}
for how, deferrable in (("sync", False), ("deferred", True)):
    training(f"{how}_named", deferrable=deferrable, **USER)
    training(f"{how}_owned", deferrable=deferrable, tony_conn_id="gateway", owner="bob",
             run_as_owner=True)
    training(f"{how}_ticket", deferrable=deferrable)

KEYTAB = "{{ dag_run.conf['keytab'] }}"
XML = ("<configuration><property><name>tony.containers.resources</name><value>" + KEYTAB
       + "</value></property></configuration>")
ANN = {"tony_conn_id": "gateway", "proxy_user": "ann"}
THEFTS = {
    "file": {"files": [KEYTAB + "::data"], **ANN},
    "link": {"files": ["{{ dag_run.conf['link'] }}"], **ANN},
    "job_file": {"conf_file": XML, "render_conf_file": True, **ANN},
    "by_another_connection": {"files": [KEYTAB]},
    "login": {"conf": {"tony.kerberos.principal": "gateway@SANDBOX.EXAMPLE",
                       "tony.kerberos.keytab": KEYTAB}, **ANN},
    "login_without_user": {"conf": {"tony.kerberos.principal": "gateway@SANDBOX.EXAMPLE",
                           "tony.kerberos.keytab": KEYTAB}},
    "ship": {"conf": {"tony.kerberos.ship-keytab": True}, **ANN},
    "rendered": {"conf_file": KEYTAB, "render_conf_file": True, **ANN},
    "another_user": {"tony_conn_id": "only_ann", "proxy_user": "bob"},
    "not_allowed": {"tony_conn_id": "gateway", "proxy_user": "admin"},
    "no_user": USER,
}
for name, more in THEFTS.items():
    with DAG(f"theft_{name}", schedule=None):
        TonyOperator(task_id="train", job_name="{{ run_id }}", executes="true",
                     **{**more, "conf": {**CONF, **more.get("conf", {})}})

with DAG("files", schedule=None):

    @task(task_id="train")
    def files(dag_run=None):
        """The hook of Airflow's own provider, and TonY's with another login, in one process."""
        from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook
        from tony_airflow.hooks.tony import TonyHook

        local, folder = dag_run.conf["local"], dag_run.conf["run"]
        ticket = WebHDFSHook("files")
        for_ann, for_bob = (TonyHook("gateway", proxy_user=user) for user in ("ann", "bob"))
        itself = TonyHook("gateway")
        shared = TonyHook()
        ticket.load_file(local, f"/user/bob/{folder}/by-ticket")
        shared.webhdfs("files").load_file(local, f"/user/bob/{folder}/by-shared-ticket")
        for_ann.stage(local, f"/user/ann/{folder}/for-ann")
        for_bob.stage(local, f"/user/bob/{folder}/for-bob")
        itself.stage(local, f"/user/gateway/{folder}/itself")
        return {
            "ann": for_ann.check_path(f"/user/ann/{folder}/for-ann"),
            "missing": for_ann.check_path(f"/user/ann/{folder}/missing"),
            "ticket": ticket.check_for_path(f"/user/bob/{folder}/for-bob"),
            "bob": for_bob.check_path(f"/user/ann/{folder}/for-ann"),
            "itself": itself.check_path(f"/user/ann/{folder}/for-ann"),
        }

    files()
'''
"""Who a job's user is on a cluster with Kerberos; ``theft_*`` have to fail."""
