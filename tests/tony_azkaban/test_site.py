"""What an administrator decides, and no job can change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tests.tony_azkaban.jobs import Job
from tony_azkaban import execution, job_properties
from tony_azkaban.site import Site, read
from tony_core.job.load import load_job
from tony_core.job.problems import JobError
from tony_core.job.spec import Job as Loaded

THIS = execution.read({"azkaban.flow.execid": "12"}, {"JOB_NAME": "train"}, "az", "")


def site(folder: Path, text: str) -> Site:
    folder.mkdir(exist_ok=True)
    (folder / "site.properties").write_text(text)
    return read(str(folder))


def made(props: Dict[str, str], settings: Site, folder: Path) -> Loaded:
    """The job, as the program makes it."""
    arguments = job_properties.arguments({"executes": "true", **props}, settings, str(folder))
    return job_properties.finish(load_job(arguments, env={}, cwd=str(folder)), settings, THIS)[0]


def test_an_empty_one_means_the_defaults(tmp_path: Path) -> None:
    settings = site(tmp_path, "# nothing\n")
    assert (settings.proxy, settings.lease_s, settings.cancel_s, settings.queues) == (
        "honour",
        120.0,
        3.0,
        (),
    )
    assert read(str(tmp_path / "none")).defaults == {}
    assert read(None) == Site()


def test_every_setting(tmp_path: Path) -> None:
    (tmp_path / "hadoop").mkdir()
    settings = site(
        tmp_path,
        f"hadoop.conf.dir={tmp_path}/hadoop\nqueues=ml, dev\nuser.to.proxy=Ignore\n"
        "server.url=http\\://az.example\\:8081/\nserver.name=az\nlease=off\ncancel.within=10s\n"
        "tony.scheduler=yarn\nfinal.tony.task.max-total-instances=8\nenv.TONY_HOME=/var/tony\n",
    )
    assert settings.hadoop_conf == f"{tmp_path}/hadoop"
    assert settings.queues == ("ml", "dev")
    assert (settings.proxy, settings.server_url, settings.server_name) == (
        "ignore",
        "http://az.example:8081",
        "az",
    )
    assert (settings.lease_s, settings.cancel_s) == (None, 10.0)
    assert settings.defaults == {"tony.scheduler": "yarn"}
    assert settings.finals == {"tony.task.max-total-instances": "8"}
    assert settings.environment == {"TONY_HOME": "/var/tony"}


ALL = (
    b"queues=ml, dev\nuser.to.proxy=Ignore\nuser.to.proxy.denied=a\nserver.url=http\\://az\\:8081/\n"
    b"server.name=az\nlease=2m\ncancel.within=10s\ntony.scheduler=yarn\nfinal.tony.x=8\nenv.A=b\n"
)


@fuzz(data=mutations(ALL, b"lease=off\ncancel.within=1e999\nhadoop.conf.dir=/\n"))
def test_any_file_is_read_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "site.properties").write_bytes(data)
        try:
            read(folder)
        except JobError as error:
            assert all(problem.file for problem in error.problems)


@pytest.mark.parametrize("text", ["env.A=\\u0000", "env.A=\\ud800", "env.=x", "env.A\\=B=x"])
def test_a_variable_that_cannot_be_set_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(JobError, match=r"site.properties:2: env\."):
        site(tmp_path, f"\n{text}\n")


@pytest.mark.parametrize("url", ["http\\://[", "http\\://az\\:port", "http\\://a b", "https\\://"])
def test_a_damaged_address_is_refused_with_its_line(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        JobError, match=r"site.properties:2: server.url: .* is not a server's address"
    ):
        site(tmp_path, f"\nserver.url={url}\n")


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        site(
            tmp_path,
            "queue=ml\nhadoop.conf.dir=conf\nuser.to.proxy=perhaps\nserver.url=az:8081\n"
            "lease=long\ncancel.within=90s\nconf.dir=/none/at/all\n",
        )
    settings = {problem.line: str(problem) for problem in caught.value.problems}
    assert set(settings) == {1, 2, 3, 4, 5, 6, 7}
    assert "did you mean queues?" in settings[1]
    assert "absolute" in settings[2] and "is not a folder" in settings[7]
    with pytest.raises(JobError, match=r"site.properties:2: .*hexadecimal"):
        site(tmp_path, "queues=ml\ntony.x=\\u1\n")


# ------------------------------------------------------------------ against what jobs say


def test_defaults_are_below_a_job_and_finals_above(tmp_path: Path) -> None:
    settings = site(
        tmp_path / "home",
        "tony.worker.instances=2\ntony.worker.memory=1g\nfinal.tony.am.retry-count=1\n",
    )
    job = made({"tony.worker.memory": "3g"}, settings, tmp_path)
    assert (job.role("worker").instances, job.role("worker").resources.memory_mb) == (2, 3072)
    assert job.master.user_retries == 1
    assert made({"tony.am.retry-count": "1"}, settings, tmp_path).master.user_retries == 1
    with pytest.raises(JobError, match=r"job properties: tony.am.retry-count: is final in .*site"):
        made({"tony.am.retry-count": "5"}, settings, tmp_path)


def test_a_default_for_a_role_that_a_job_has_not_is_of_no_harm(tmp_path: Path) -> None:
    settings = site(tmp_path / "home", "tony.ps.memory=1g\n")
    job = made({"tony.worker.instances": "1"}, settings, tmp_path)
    assert [role.name for role in job.roles] == ["worker"]
    job = made({"tony.worker.instances": "1", "tony.ps.vcores": "2"}, settings, tmp_path)
    assert [role.name for role in job.roles] == ["worker"]


def test_a_final_cannot_be_changed_by_an_older_name(tmp_path: Path) -> None:
    settings = site(tmp_path / "home", "final.tony.task.heartbeat-interval-ms=1000\n")
    with pytest.raises(JobError, match=r"tony\.task\.heartbeat-interval-ms: is final"):
        made({"tony.task.heartbeat-interval": "9000"}, settings, tmp_path)


VALUES = st.dictionaries(
    st.sampled_from(["tony.worker.vcores", "tony.am.vcores", "tony.am.retry-count"]),
    st.integers(1, 9).map(str),
)


@given(VALUES, VALUES, VALUES)
def test_precedence(
    tmp_path_factory: pytest.TempPathFactory,
    defaults: Dict[str, str],
    file: Dict[str, str],
    props: Dict[str, str],
) -> None:
    """Whatever each says: a job's properties, its file, the site's defaults, the table's."""
    folder = tmp_path_factory.mktemp("job")
    body = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in file.items()
    )
    (folder / "tony.xml").write_text(f"<configuration>{body}</configuration>")
    settings = Site(defaults={"tony.worker.instances": "1", **defaults})
    job = made(props, settings, folder)
    wanted = {**defaults, **file, **props}
    for key, text in wanted.items():
        assert job.setting(key) == text
    assert job.role("worker").resources.vcores == int(wanted.get("tony.worker.vcores", 1))
    assert job.master.user_retries == int(wanted.get("tony.am.retry-count", 2))


@pytest.mark.parametrize(
    ("queue", "runs_in"),
    [(None, "ml"), ("dev", "dev"), ("root.dev", "root.dev"), ("prod", None), ("default", None)],
)
def test_queues(tmp_path: Path, queue: str | None, runs_in: str | None) -> None:
    settings = site(tmp_path / "home", "queues=ml,dev\n")
    props = {"tony.yarn.queue": queue} if queue else {}
    if runs_in is None:
        with pytest.raises(JobError, match=f"tony.yarn.queue: {queue} is not one .*ml, dev"):
            made(props, settings, tmp_path)
    else:
        assert made(props, settings, tmp_path).queue == runs_in


def test_the_lease_is_the_sites_unless_the_job_names_one(tmp_path: Path) -> None:
    settings = site(tmp_path / "home", "lease=50s\n")
    assert made({}, settings, tmp_path).timeouts.client_lease_s == 50
    assert made({"tony.client.lease": "7s"}, settings, tmp_path).timeouts.client_lease_s == 7
    assert made({}, Site(), tmp_path).timeouts.client_lease_s == 120


def test_a_job_cannot_name_another_configuration(tmp_path: Path) -> None:
    """The whole program, with an environment that the job has filled."""
    home, theirs = tmp_path / "home", tmp_path / "theirs"
    for folder, name in ((home / "conf", "of-the-site"), (theirs, "of-the-job")):
        folder.mkdir(parents=True)
        (folder / "tony-site.xml").write_text(
            "<configuration><property><name>tony.application.name</name>"
            f"<value>{name}</value></property></configuration>"
        )
    job = Job(tmp_path / "job", "show /dev/null").set({"env.TONY_CONF_DIR": str(theirs)})
    job.home = home
    assert "SUCCEEDED of-the-site (" in job.run()
    (home / "site.properties").write_text("queues=ml\nquues=dev\n")
    (line,) = job.run(2).splitlines()
    assert "site.properties:2: quues" in line
