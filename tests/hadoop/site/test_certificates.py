"""The authorities of a site's web servers: a file of the client's, which travels as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.certificates import CA_FILE, CA_PEM, LONGEST, read_authorities
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import hdfs_environment
from tony_core.schedulers.yarn.job_credentials import (
    select_executor_properties,
    select_master_properties,
)

ONE = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----"


def named(path: Path) -> SiteConfiguration:
    return SiteConfiguration.of({CA_FILE: str(path)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "authorities.pem"
    made.write_text(f"Alias name: caf\u00e9\n{ONE}\n\nAlias name: other\n{ONE}\n", encoding="utf-8")
    return made


def test_the_certificates_and_nothing_else(file: Path) -> None:
    assert read_authorities(named(file)) == f"{ONE}\n{ONE}\n"


def test_a_site_that_names_none() -> None:
    assert read_authorities(SiteConfiguration.of({})) == ""


def test_a_java_truststore(tmp_path: Path) -> None:
    path = tmp_path / "truststore.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00")
    with pytest.raises(ConfigurationError) as caught:
        read_authorities(named(path))
    assert str(caught.value) == (
        f"tony.https.ca-file is {path} in given, which holds no certificate as PEM. If it is a"
        f" truststore of Java's, export it: keytool -list -rfc -keystore {path} > authorities.pem"
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        read_authorities(named(tmp_path / "none"))


def test_the_bundle_of_a_whole_system(tmp_path: Path) -> None:
    path = tmp_path / "bundle.pem"
    path.write_text(f"{ONE}\n" * (LONGEST // len(ONE) + 1))
    with pytest.raises(ConfigurationError, match="at most 48 KB travel with a job"):
        read_authorities(named(path))


def test_they_travel_with_a_job(file: Path) -> None:
    conf = SiteConfiguration.of({CA_FILE: str(file), "dfs.http.policy": "HTTPS_ONLY"})
    masters = select_master_properties(conf)
    assert masters[CA_PEM].strip() == f"{ONE}\n{ONE}"
    assert CA_FILE not in masters
    executors = select_executor_properties(masters)
    file.unlink()
    assert read_authorities(SiteConfiguration.of(executors)).count(ONE) == 2


@pytest.mark.parametrize(("policy", "known"), [("HTTPS_ONLY", True), ("HTTP_ONLY", False)])
def test_programs_know_them_where_hdfs_is_https(file: Path, policy: str, known: bool) -> None:
    conf = SiteConfiguration.of(
        {CA_FILE: str(file), "fs.defaultFS": "hdfs://nn:8020", "dfs.http.policy": policy}
    )
    assert ("BEGIN CERTIFICATE" in hdfs_environment(conf, "ann")) is known
