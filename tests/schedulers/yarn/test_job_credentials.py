"""What travels in a launch context's credentials."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import Token
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.job_credentials import (
    ExecutorCredentials,
    JobCredentialsError,
    MasterCredentials,
    ShippedKeytab,
)

MASTER = MasterCredentials(
    job='{"name": "mnist ü"}',
    artifacts=({"name": "src", "uri": "hdfs://lake/x"},),
    config="<configuration/>",
    site={"fs.defaultFS": "hdfs://lake"},
    user="ada",
    root="hdfs://lake/user/ada/.tony",
    history_root="hdfs://lake/user/ada/.tony/history",
)
EXECUTOR = ExecutorCredentials(
    site={"fs.defaultFS": "hdfs://lake"}, user="ada", state_dir="hdfs://lake/user/ada/.tony/apps/a"
)
SECRET = bytes(range(32))
SHIPPED = ShippedKeytab("ada@LAKE", b"\x05\x02KEYS", ("hdfs://lake", "hdfs://nn:8020"))


def test_a_master_finds_its_job_in_its_credentials() -> None:
    secrets, file = job_credentials.master_secrets(SECRET, MASTER)
    assert file is None
    read = job_credentials.parse_credentials(Credentials(secrets=secrets).encode())[1]
    assert read[job_credentials.SECRET] == SECRET
    assert job_credentials.read_master_credentials(read) == MASTER


def test_a_long_job_travels_as_a_file(tmp_path: Path) -> None:
    secrets, file = job_credentials.master_secrets(SECRET, MASTER, largest=10)
    assert set(secrets) == {job_credentials.SECRET}
    assert file is not None
    (tmp_path / job_credentials.JOB_FILE).write_bytes(file)
    assert job_credentials.read_master_credentials(secrets, str(tmp_path)) == MASTER


def test_the_limit_is_of_the_packed_size() -> None:
    noise = os.urandom(job_credentials.LARGEST).hex()
    _, file = job_credentials.master_secrets(
        SECRET, MasterCredentials(noise, (), "", {}, "", "", "")
    )
    assert file is not None
    blanks = " " * 10 * job_credentials.LARGEST
    _, file = job_credentials.master_secrets(
        SECRET, MasterCredentials(blanks, (), "", {}, "", "", "")
    )
    assert file is None


def test_an_executor_learns_where_the_next_master_is() -> None:
    secrets = {job_credentials.SECRET: SECRET, job_credentials.SITE: EXECUTOR.encode()}
    read = job_credentials.parse_credentials(Credentials(secrets=secrets).encode())[1]
    assert job_credentials.read_executor_credentials(read) == EXECUTOR
    assert job_credentials.JOB not in read


def test_a_keytab_is_a_secret_of_its_own() -> None:
    secrets = {job_credentials.KEYTAB: SHIPPED.encode()}
    read = job_credentials.parse_credentials(Credentials(secrets=secrets).encode())[1]
    assert job_credentials.read_shipped_keytab(read) == SHIPPED
    assert job_credentials.read_shipped_keytab({}) is None
    assert "KEYS" not in f"{SHIPPED!r} {SHIPPED}"
    for data in (b"", b"x", EXECUTOR.encode(), MASTER.encode()):
        with pytest.raises(JobCredentialsError):
            job_credentials.read_shipped_keytab({job_credentials.KEYTAB: data})


def test_packing_is_the_same_every_time() -> None:
    assert MASTER.encode() == MasterCredentials.decode(MASTER.encode()).encode()


@pytest.mark.parametrize("shown", [repr(MASTER), str(MASTER)])
def test_the_job_is_not_shown(shown: str) -> None:
    assert "mnist" not in shown


def test_a_container_without_a_job_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobCredentialsError, match="this container has no job"):
        job_credentials.read_master_credentials({}, str(tmp_path))
    with pytest.raises(JobCredentialsError, match="hold no tony"):
        job_credentials.read_executor_credentials({})


@pytest.mark.parametrize("data", [b"", b"x", b"\x78\x9c", MASTER.encode()[:-9], b"\0" * 50])
def test_bytes_that_are_no_credentials_are_refused(data: bytes) -> None:
    with pytest.raises(JobCredentialsError):
        MasterCredentials.decode(data)


def test_credentials_of_another_kind_are_refused() -> None:
    with pytest.raises(JobCredentialsError, match="lacks"):
        MasterCredentials.decode(EXECUTOR.encode())


SOME = st.dictionaries(st.text(max_size=20), st.binary(max_size=300), max_size=6)


@given(SOME, st.lists(st.binary(max_size=200), max_size=4), st.sampled_from([0, 1]))
def test_secrets_are_read_as_hadoop_reads_them(
    secrets: Dict[str, bytes], tokens: list[bytes], version: int
) -> None:
    given_tokens = {f"t{i}": Token(data, data[::-1], "kind", "") for i, data in enumerate(tokens)}
    data = Credentials(given_tokens, secrets).encode(version)
    assert job_credentials.parse_credentials(data)[1] == dict(Credentials.decode(data).secrets)


@fuzz(noise=st.binary(max_size=60), cut=st.integers(0, 200))
def test_broken_credentials_never_do_worse_than_an_error(noise: bytes, cut: int) -> None:
    whole = Credentials(secrets={"a": b"1" * 130, "b": noise}).encode()
    for data in (whole[:cut], b"HDTS\0" + noise, noise):
        try:
            job_credentials.parse_credentials(data)
        except JobCredentialsError:
            pass


PACKED = (MASTER.encode(), EXECUTOR.encode(), SHIPPED.encode())


@fuzz(data=mutations(*PACKED, zlib.decompress(MASTER.encode())))
def test_damaged_credentials_are_read_or_refused(data: bytes) -> None:
    for kind in (MasterCredentials, ExecutorCredentials, ShippedKeytab):
        for packed in (data, zlib.compress(data)):
            try:
                kind.decode(packed)
            except JobCredentialsError:
                pass
