"""Who gets the GPUs of a real machine, who waits, and who is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from tests.gpu import smi
from tests.gpu.conftest import RUN, GpuJob, environment, soon
from tony_core.schedulers.local import capacity

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def doctor(*words: str) -> Dict[str, Any]:
    """What it finds of GPUs."""
    argv = [*RUN, "doctor", "--no-probe", "--json", *words]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    text = json.loads(done.stdout)
    return next(x for x in text["findings"] if "GPU" in x["what"])


def test_they_are_distinguished_by_uuid() -> None:
    assert smi.uuids()
    assert list(capacity.gpu_ids(None)) == smi.uuids()
    assert capacity.gpu_count() == len(smi.uuids())
    assert capacity.gpu_ids(0) == ()


def test_they_are_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    there = smi.uuids()
    monkeypatch.setenv("PATH", "/nowhere")
    if capacity.nvidia_smi() is None:
        pytest.skip("nvidia-smi stands at a place of this machine's own")
    assert list(capacity.gpu_ids(None)) == there


def test_doctor_counts_them() -> None:
    found = doctor()
    assert (found["verdict"], found["said"]) == ("ok", str(len(smi.uuids()))), found


def test_doctor_names_who_is_on_them(submit: Callable[..., GpuJob]) -> None:
    job = submit("grind.py", params="256")
    job.until("work on the GPU", lambda: job.lines("grinding"))
    pid = int(job.lines("grinding")[0].split()[1])
    found = soon(lambda: [x for x in [doctor()] if str(pid) in x["said"]], f"{pid} in the report")
    assert found[0]["verdict"] == "note"


def test_doctor_finds_fewer_than_the_site_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(smi.uuids())
    site = "<property><name>tony.local.gpus</name><value>{}</value></property>"
    text = f"<configuration>{site.format(count + 1)}</configuration>"
    (tmp_path / "tony-site.xml").write_text(text)
    monkeypatch.setenv("TONY_CONF_DIR", str(tmp_path))
    found = doctor()
    assert found["verdict"] == "wrong"
    assert f"says {count + 1}, and nvidia-smi shows {count}" in found["said"]


def test_more_than_there_are_is_refused_with_the_numbers(submit: Callable[..., GpuJob]) -> None:
    count = len(smi.uuids())
    job = submit("train.py", conf=[f"tony.worker.gpus={count + 1}"])
    output = job.ends(2)
    assert f"{count + 1} GPUs are requested and there" in output, output


def test_so_is_a_gang_that_wants_more_together(submit: Callable[..., GpuJob]) -> None:
    count = len(smi.uuids())
    job = submit("train.py", conf=[f"tony.worker.instances={count + 1}"])
    output = job.ends(2)
    assert f"{count + 1} x worker never fit on this machine together: {count + 1} GPUs" in output


def test_more_gpus_in_the_job_file_than_exist_are_refused(
    submit: Callable[..., GpuJob],
) -> None:
    count = len(smi.uuids()) + 1
    output = submit(
        "train.py", conf=[f"tony.worker.gpus={count}", f"tony.local.gpus={count}"]
    ).ends(2)
    assert f"{count} GPUs are requested and there" in output


def test_the_second_waits_and_names_the_first(submit: Callable[..., GpuJob]) -> None:
    count = len(smi.uuids())
    all_of_them = [f"tony.worker.gpus={count}"]
    first = submit("grind.py", params="256", conf=[*all_of_them, "tony.application.name=first"])
    first.until("work on the GPU", lambda: first.lines("grinding"))
    holder = first.app_id
    second = submit("seen.py", params="torch", conf=all_of_them)
    words = ("GPU", f"(0 of {count} free)", holder)

    def status() -> bool:
        argv = [*RUN, "status", second.app_id]
        done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
        return all(word in done.stdout for word in words)

    second.until("an id", lambda: "local_" in second.output.read_text())
    soon(status, f"the second to say {words}")
    subprocess.run([*RUN, "kill", holder], env=environment(), timeout=60, check=True)
    first.ends(137)
    second.ends(0)
    assert second.seen()["uuids"] == list(smi.uuids())
    waited = [line["text"] for line in second.story() if "0 of" in line.get("text", "")]
    assert waited, "its story says that it waited"
