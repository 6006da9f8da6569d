"""The operator's arguments: as a DAG is parsed, and as templates are rendered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import jinja2
import pytest
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowFailException,
    TaskDeferred,
    redact,
)

from tests.tony_airflow.tasks import Instance, end_all, jobs, operator, until
from tony_airflow.connection import Site
from tony_airflow.hooks.tony import TonyHook
from tony_airflow.links.tony import LINKS
from tony_airflow.operators.task_run import TaskRun
from tony_airflow.operators.tony import TonyOperator
from tony_core.job.problems import JobError

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    yield
    end_all()


def links_of_serialized(dag: Any) -> Dict[str, Dict[str, str]]:
    """Of each task the buttons' names, and the XComs with their addresses."""
    from airflow.serialization.serialized_objects import DagSerialization

    tasks = [task["__var"] for task in DagSerialization.to_dict(dag)["dag"]["tasks"]]
    return {task["task_id"]: task["_operator_extra_links"] for task in tasks}


class TestTemplates:
    def test_every_argument_and_paths_stay_paths(self, tmp_path: Path) -> None:
        with DAG("dag", schedule=None):
            task = operator(
                executes="python train.py --date {{ ds }} /etc/conf.xml",
                conf_file="{{ ds }}/tony.xml",
                env={"DAY": "{{ ds }}"},
                roles={"worker": {"instances": "{{ n }}"}},
            )
        task.render_template_fields({"ds": "2026-01-01", "n": 2}, jinja2.Environment())
        assert task.executes == "python train.py --date 2026-01-01 /etc/conf.xml"
        assert task.conf_file == "2026-01-01/tony.xml"
        assert task.env == {"DAY": "2026-01-01"}
        assert task.roles == {"worker": {"instances": "2"}}
        assert TonyOperator.template_ext == (".xml",)
        assert set(TonyOperator.template_fields_renderers) <= set(TonyOperator.template_fields)

    def test_the_job_file_itself_when_asked(self, tmp_path: Path) -> None:
        job_file = tmp_path / "tony.xml"
        job_file.write_text(
            "<configuration><property><name>tony.worker.instances</name>"
            "<value>{{ n }}</value></property></configuration>"
        )
        task = operator(conf_file=str(tmp_path / "{{ name }}"), roles=None, render_conf_file=True)
        task.render_template_fields({"n": 2, "name": "tony.xml"}, jinja2.Environment())
        assert task.conf_file is not None and "<value>2</value>" in task.conf_file
        ti = Instance()
        task.framework = "pytorch"
        result = task.execute(ti.context())
        assert result["outcome"] == "SUCCEEDED"
        hook = TonyHook.of(Site())
        assert len(hook.tasks(result["application_id"])) == 2
        hook.close()

    def test_a_job_file_that_is_not_there(self) -> None:
        task = operator(conf_file="/nowhere/tony.xml", render_conf_file=True)
        task.render_template_fields({}, jinja2.Environment())
        with pytest.raises(AirflowFailException, match=r"/nowhere/tony\.xml cannot be read"):
            task.execute(Instance().context())

    def test_a_job_file_that_is_gone_when_the_task_is_resumed(self) -> None:
        with pytest.raises(TaskDeferred) as deferred:
            operator(deferrable=True).execute(Instance().context())
        until(lambda: jobs(running=False), "the end")
        _, arguments = deferred.value.trigger.serialize()
        event = {"site": arguments["site"], "app_id": arguments["app_id"], "outcome": "SUCCEEDED"}
        task = operator(conf_file="/nowhere/tony.xml", render_conf_file=True)
        task.render_template_fields({}, jinja2.Environment())
        assert task.execute_complete(Instance().context(), event)["outcome"] == "SUCCEEDED"

    def test_secrets_are_masked_before_what_is_rendered_is_stored(self) -> None:
        """Under names that say nothing to Airflow's own masker."""
        task = operator(
            env={"GOOGLE_CREDENTIALS": "key-of-{{ who }}", "AWS_ACCESSKEY": "AKIAEXAMPLE"},
            conf={"tony.store.password": "open-sesame"},
        )
        context: Any = {"who": "google"}
        task.render_template_fields(context, jinja2.Environment())
        rendered: List[Any] = [task.env, task.conf]
        shown = str(redact([f"{name}={text}" for one in rendered for name, text in one.items()]))
        assert "AWS_ACCESSKEY" in shown
        for secret in ("key-of-google", "AKIAEXAMPLE", "open-sesame"):
            assert secret not in shown

    def test_wrong_arguments_are_reported_on_running_and_not_on_rendering(self) -> None:
        task = operator(env=7, roles="many", conf={"tony.x": object()})
        task.render_template_fields({}, jinja2.Environment())


class TestParsing:
    def test_nothing_of_the_client_is_loaded(self) -> None:
        """A scheduler parses DAGs all day long, and runs none of their tasks."""
        program = (
            "import sys\n"
            "import tony_airflow.operators.tony, tony_airflow.sensors.tony\n"
            "import tony_airflow.decorators.tony\n"
            "tony_airflow.operators.tony.TonyOperator(task_id='t', roles={'worker': 2})\n"
            "ours = ('tony', 'tony_core', 'tony_executor')\n"
            "print('loaded:', sorted(n for n in sys.modules if n.partition('.')[0] in ours))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=200,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "loaded: []"

    def test_buttons_for_the_tasks_that_are_known(self) -> None:
        task = operator(
            roles={"ps": 1, "worker": {"instances": 2}, "chief": {"instances": "{{x}}"}}
        )
        names = [link.name for link in task.operator_extra_links]
        assert names[:4] == ["TensorBoard", "Task logs", "YARN application", "Portal"]
        assert names[4:] == ["Log of ps:0", "Log of worker:0", "Log of worker:1"]
        assert len(operator(roles={"worker": 1000}).operator_extra_links) == 20

    def test_a_mapped_tasks_buttons_are_those_of_its_partial(self) -> None:
        """As the scheduler serializes the DAG: the address of each button is one XCom's."""
        with DAG("dag", schedule=None) as dag:
            words: Any = {"scheduler": "local", "roles": {"worker": 2}}
            TonyOperator.partial(task_id="some", **words).expand(executes=["a", "b"])
            TonyOperator.partial(task_id="other").expand(roles=[{"worker": 1}, {"worker": 2}])
            TonyOperator(task_id="one", executes="a", **words)
        found = links_of_serialized(dag)
        assert found["some"] == found["one"]
        assert found["one"]["Log of worker:1"] == "tony_link_log_worker_1"
        assert set(found["other"]) == {link.name for link in LINKS}

    def test_deferrable_is_the_installations_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not operator().deferrable
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "true")
        assert operator().deferrable
        assert not operator(deferrable=False).deferrable

    def test_airflows_own_queue_is_not_the_jobs(self) -> None:
        task = operator(queue="celery_gpu", yarn_queue="ml")
        assert (task.queue, task.yarn_queue) == ("celery_gpu", "ml")

    def test_errors_of_the_client_are_airflows(self) -> None:
        run = TaskRun(operator(), Instance().context())
        with pytest.raises(AirflowFailException), run.translated_errors():
            raise JobError([])
