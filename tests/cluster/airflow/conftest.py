"""One Airflow and one Hadoop for all tests of a module; its DAG files stand in ``DAGS``.

DAGS = {"trainings.py": "..."}
CELERY = True  # with PostgreSQL, Redis and the CeleryExecutor; by default SQLite and LocalExecutor
FEATURES = ("secure",)  # of the Hadoop
def settings_of(cluster, folder): ...  # more of Airflow's environment

def test_it(training: Callable[..., Training]) -> None:
    one = training("deferred")
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable, Generator, Iterator, List, Tuple

import pytest

from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import Training
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import Clusters, GetHadoop
from tests.cluster.hadoop.jars import VERSIONS, SandboxError

FEATURES = ("two_nodes", "log_aggregation")
CONNECTION = "tony_default"

_AIRFLOW = pytest.StashKey[Airflow]()


@pytest.fixture(scope="module")
def airflow(
    hadoop_clusters: Clusters,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    environment: Callable[[str], Path],
) -> Iterator[Airflow]:
    """It has the connection to the module's cluster."""
    _, cluster = hadoop_clusters.get(_features(request), VERSIONS[0], set())
    folder = tmp_path_factory.mktemp("airflow") / "standing"
    settings_of = getattr(request.module, "settings_of", lambda *_: {})
    settings = settings_of(cluster, folder.parent)
    has_celery = getattr(request.module, "CELERY", False)
    celery = environment("airflow-celery") / "bin" / "python" if has_celery else None
    made = Airflow.up(folder, request.module.DAGS, settings, celery)
    try:
        extra = {"scheduler": "yarn", "hadoop_conf_dir": str(cluster.conf_dir)}
        made.rest.connect(CONNECTION, "tony", extra=json.dumps(extra))
        yield made
    finally:
        made.remove()


@pytest.fixture
def training(
    airflow: Airflow, hadoop: GetHadoop, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Training]]:
    """``training(dag_id, **conf)``: a run of a DAG whose task trains until it is stopped."""
    request.node.stash[_AIRFLOW] = airflow
    airflow.heal()
    cluster = hadoop(*_features(request))
    made: List[Training] = []

    def make(dag_id: str, **conf: object) -> Training:
        made.append(Training(airflow, cluster, dag_id, tmp_path / f"run-{len(made)}", conf))
        return made[-1]

    yield make
    for one in made:
        one.close()
    airflow.rest.close()  # a server that was started again has given it another connection


@pytest.fixture
def cluster(hadoop: GetHadoop, request: pytest.FixtureRequest) -> Hadoop:
    """The one that the connection leads to."""
    return hadoop(*_features(request))


def _features(request: pytest.FixtureRequest) -> Tuple[str, ...]:
    found: Tuple[str, ...] = getattr(request.module, "FEATURES", FEATURES)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With the output of Airflow's components, when a test failed."""
    report = yield
    standing = item.stash.get(_AIRFLOW, None)
    if report.failed and standing is not None:
        try:
            report.sections.append(("Airflow", str(standing)))
        except SandboxError as error:  # it failed when the module's Airflow was removed
            report.sections.append(("Airflow", f"it is gone, its logs with it: {error}"))
    return report
