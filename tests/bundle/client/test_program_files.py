"""A program that no task would find is reported at submit; what may be found is never refused."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from tests.bundle.jobs import job, messages_of, ref
from tony_core.bundle.client import planning
from tony_core.bundle.client.sources import list_program_files
from tony_core.job.spec import Job, Setting


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("python train.py", ["train.py"]),
        ("python3.11 -u train.py --data /x", ["train.py"]),
        ("/usr/bin/python3 -W ignore -X dev ./models/train.py", ["models/train.py"]),
        ("venv/bin/python train.py", ["venv/bin/python", "train.py"]),
        ("'my python/bin/python' 'my script.py'", ["my python/bin/python", "my script.py"]),
        ("FOO=1 BAR='a b' python train.py", ["train.py"]),
        ("exec python train.py", ["train.py"]),
        ("./run.sh --fast", ["run.sh"]),
        ("bin/run", ["bin/run"]),
        ("bash run.sh && echo done", ["run.sh"]),
        ("python train.py | tee log; exit 3", ["train.py"]),
        ("python train.py > out.txt 2>&1", ["train.py"]),
        ("python prepare.py; python train.py", ["prepare.py"]),
    ],
)
def test_what_a_command_needs_in_its_folder(command: str, needed: List[str]) -> None:
    assert list_program_files(command) == needed


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "train --fast",  # on the PATH
        "/opt/app/train.py",
        "python /opt/app/train.py",
        "python -m package.train train.py",
        "python -um package train.py",
        "python -c 'import train' train.py",
        "python",
        "python -",
        "python - < train.py",
        "python $SCRIPT",
        "python ${HERE}/train.py",
        "$PYTHON train.py",
        "python ~/train.py",
        "python `which train.py`",
        "python *.py",
        "python train.py || python other.py",
        "cd models && python train.py",
        "cp /shared/train.py . && python train.py",
        "test -f train.py && python train.py",
        "if [ -f train.py ]; then python train.py; fi",
        "(cd x; python train.py)",
        "bash -c 'python train.py'",
        "bash -lc 'python train.py'",
        "bash -x -e run.sh",
        "env A=1 python train.py",
        "torchrun --nproc-per-node 2 train.py",
        "python ../shared/train.py",
        "python 'unclosed",
        "python --version",
        "python \\\n train.py",
        "# a comment",
        "",
    ],
)
def test_what_cannot_be_known_is_not_asked_for(command: str) -> None:
    assert list_program_files(command) == []


def with_command(of: Job, command: str, key: str = "tony.client.executes") -> Job:
    roles = tuple(role._replace(command=command) for role in of.roles)
    settings = (Setting(key, command, "tony.xml:7", False),)
    return of.replace(roles=roles, settings=settings)


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "models").mkdir(parents=True)
    (folder / "train.py").write_text("")
    (folder / "models" / "big.py").write_text("")
    (folder / "linked").symlink_to("models")
    (folder / "notes.txt").write_text("")
    (folder / ".tonyignore").write_text("notes.txt\nold\n")
    (folder / "old").mkdir()
    (folder / "old" / "run.py").write_text("")
    return folder


def problems(of: Job, tmp_path: Path) -> List[str]:
    return messages_of(planning.plan(of, str(tmp_path / "root")))


@pytest.mark.parametrize(
    "command",
    ["python train.py", "python models/big.py", "python linked/big.py", "python data/x.py",
     "./tool.sh", "venv/bin/python train.py"],
)  # fmt: skip
def test_what_is_there_is_found(command: str, src: Path, tmp_path: Path) -> None:
    (tmp_path / "tool.sh").write_text("")
    (tmp_path / "data").mkdir()
    files = (ref(tmp_path / "tool.sh"), ref(tmp_path / "data"), ref(tmp_path / "data", "venv-x"))
    found = problems(with_command(job(src, files=files), command), tmp_path)
    expected = ["venv/bin/python"] if command.startswith("venv/") else []
    assert [name for name in expected if any(name in text for text in found)] == expected
    assert len(found) == len(expected)


def test_the_message_names_key_folder_and_what_is_meant(src: Path, tmp_path: Path) -> None:
    (text,) = problems(with_command(job(src), "python src/train.py --n 3"), tmp_path)
    assert text == (
        f"tony.xml:7: tony.client.executes: src/train.py is not in {src} (--src_dir) and no"
        " resource has that name (did you mean train.py?)"
    )
    (text,) = problems(with_command(job(src), "python trian.py"), tmp_path)
    assert text.endswith("(did you mean train.py?)")


def test_the_word_python_behind_a_python_that_runs_it(src: Path, tmp_path: Path) -> None:
    given = with_command(job(src), "/opt/python3 python train.py")
    given = given.replace(program=given.program._replace(python="/opt/python3"))
    (text,) = problems(given, tmp_path)
    assert text.endswith("(beside --python_binary_path, --executes is the program's file alone)")


def test_an_ignored_program_file_is_reported(src: Path, tmp_path: Path) -> None:
    (text,) = problems(with_command(job(src), "python old/run.py"), tmp_path)
    assert "old/run.py is left out of" in text and ".tonyignore" in text


def test_without_a_source_folder(tmp_path: Path) -> None:
    (text,) = problems(with_command(job(), "python train.py"), tmp_path)
    assert text == (
        "tony.xml:7: tony.client.executes: train.py is nowhere in the job: there is no --src_dir,"
        " and no resource has that name"
    )


def test_a_program_named_with_its_folder_as_the_first_versions_there_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "models").mkdir(parents=True)
    (tmp_path / "src" / "models" / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    (text,) = problems(with_command(job(), "python src/models/train.py"), tmp_path)
    assert text.endswith("(did you mean models/train.py and --src_dir src?)")
    command = "python src/models/train.py"
    (text,) = problems(with_command(job(tmp_path / "src"), command), tmp_path)
    assert text.endswith("(did you mean models/train.py?)")


def test_a_source_that_was_not_looked_into_is_not_judged(tmp_path: Path) -> None:
    packed = tmp_path / "src.zip"
    import zipfile

    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("other.py", "")
    assert problems(with_command(job(packed), "python train.py"), tmp_path) == []


def test_a_roles_own_command_and_resources(src: Path, tmp_path: Path) -> None:
    (tmp_path / "eval.py").write_text("")
    of = job(src, worker=(), tester=(ref(tmp_path / "eval.py"),))
    worker, tester = of.roles
    roles = tuple(role._replace(command="python eval.py") for role in (worker, tester))
    keys = tuple(Setting(f"tony.{role.name}.command", "x", "tony.xml:1", False) for role in roles)
    both = of.replace(roles=roles, settings=keys)
    (text,) = problems(both, tmp_path)
    assert "tony.worker.command" in text
