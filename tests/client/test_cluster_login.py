"""Which keytabs an adapter's jobs may ship."""

from __future__ import annotations

from pathlib import Path

from tony_core.client.cluster_login import find_service_keytab_problems
from tony_core.job.spec import Hadoop, Job


def test_a_services_own_keytab_goes_to_no_job(tmp_path: Path) -> None:
    own = tmp_path / "airflow.keytab"
    own.touch()
    link = tmp_path / "link"
    link.symlink_to(own)
    for path in (own, link, tmp_path / "." / "airflow.keytab"):
        job = Job("j", (), hadoop=Hadoop(keytab=str(path), ship_keytab=True))
        (problem,) = find_service_keytab_problems(job, "the connection hadoop", ["", str(own)])
        assert problem.key == "tony.kerberos.ship-keytab"
        assert "is the keytab of the connection hadoop, which no job may have" in str(problem)


def test_an_owners_keytab_and_one_that_stays_here(tmp_path: Path) -> None:
    own = str(tmp_path / "airflow.keytab")
    for hadoop in (
        Hadoop(keytab=str(tmp_path / "ann.keytab"), ship_keytab=True),
        Hadoop(keytab=own),
        Hadoop(),
    ):
        assert find_service_keytab_problems(Job("j", (), hadoop=hadoop), "it", [own]) == []
