"""The scripts of bin/ and .ci/: what they say when something is missing, and what they make."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Set

import pytest

from tests.importgraph import CHECKOUT

SCRIPTS = [
    *("bin/test", "bin/try", "bin/hadoop-sandbox", "bin/azkaban-sandbox", "bin/_venv.sh"),
    *(".ci/run", ".ci/night", ".ci/envs", ".ci/_stages.sh"),
]

BEHIND = getattr(sys, "_base_executable", "") or sys.executable
"""The interpreter that our own environment was made from."""


def bash(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", program, "script", *arguments],
        env={**os.environ, **environment},
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def interpreter(folder: Path, *, without: List[str]) -> Path:
    """A python3 that works, but refuses what is asked of it in some words."""
    path = folder / "python3"
    cases = "".join(f'case "$*" in *"{words}"*) exit 1;; esac\n' for words in without)
    path.write_text(f'#!/bin/bash\n{cases}exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_can_read_it(script: str) -> None:
    assert bash("bash -n " + script).stderr == ""


@pytest.mark.parametrize("script", [name for name in SCRIPTS if not name.endswith(".sh")])
def test_it_can_be_run(script: str) -> None:
    assert os.access(CHECKOUT / script, os.X_OK)


class TestFindingAPython:
    FIND = "source bin/_venv.sh; find_python 10"

    def test_the_one_that_is_asked_for(self) -> None:
        done = bash(self.FIND, PYTHON=sys.executable)  # of an environment: the one behind it
        assert (done.returncode, done.stdout.strip()) == (0, BEHIND)

    def test_one_too_old_is_refused_and_named(self, tmp_path: Path) -> None:
        old = tmp_path / "python3.6"
        old.write_text("#!/bin/sh\nexit 1\n")
        old.chmod(0o755)
        done = bash(self.FIND, PYTHON=str(old))
        assert done.returncode == 1
        assert f"needs Python 3.10 or newer; found {old}" in done.stderr

    def test_a_newer_one_under_another_name_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "python3.12").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for path in tmp_path.iterdir():
            path.chmod(0o755)
        done = bash(self.FIND, PATH=f"{tmp_path}:/usr/bin:/bin", PYTHON="")
        assert (done.returncode, done.stdout.strip()) == (0, BEHIND)


class TestMakingAnEnvironment:
    MAKE = 'source bin/_venv.sh; make_venv "$1" "$2"'

    def test_without_a_builder_it_names_what_to_install(self, tmp_path: Path) -> None:
        python = interpreter(tmp_path, without=["ensurepip", "virtualenv", "-m pip"])
        done = bash(self.MAKE, str(python), str(tmp_path / "venv"))
        assert done.returncode == 1
        assert "apt-get install python3-venv" in done.stderr
        assert not (tmp_path / "venv").exists()

    OURS = (
        'source bin/_venv.sh; make_venv() { mkdir "$2/bin"; }; _install() { :; };'
        ' checkout_venv "$1" ""'
    )

    def test_a_folder_not_made_by_the_script_is_unchanged(self, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "pyvenv.cfg").touch()
        done = bash(self.OURS, str(theirs))
        assert done.returncode == 1
        assert f"{theirs} was not made by this script and stays as it is" in done.stderr
        assert (theirs / "pyvenv.cfg").exists()

    def test_our_own_that_was_interrupted_is_made_again(self, tmp_path: Path) -> None:
        broken = self.OURS.replace("_install() { :; }", "_install() { kill $$; }")
        for script, code in ((broken, -15), (self.OURS, 0), (self.OURS, 0)):
            assert bash(script, str(tmp_path / "ours")).returncode == code
        assert (tmp_path / "ours" / ".made-from").read_text()

    def test_its_modules_are_compiled_by_all_cores(self, tmp_path: Path) -> None:
        modules = 'ln -s "$1" "$2/bin/python"; echo 1 >"$2/good.py"; echo 1 1 >"$2/bad.py"'
        makes = self.OURS.replace('mkdir "$2/bin"; }', f'mkdir "$2/bin"; {modules}; }}')
        done = bash(makes, str(tmp_path / "ours"))
        assert done.returncode == 0, done.stderr
        assert [path.stem.split(".")[0] for path in tmp_path.rglob("*.pyc")] == ["good"]

    def test_what_is_kept_in_it_outlives_its_renewal(self, tmp_path: Path) -> None:
        assert bash(self.OURS, str(tmp_path / "ours")).returncode == 0
        (tmp_path / "ours" / "tony").mkdir()
        (tmp_path / "ours" / "tony" / "history").touch()
        (tmp_path / "ours" / "old").touch()
        (tmp_path / "ours" / ".made-from").write_text("another version")
        assert bash(self.OURS, str(tmp_path / "ours")).returncode == 0
        assert (tmp_path / "ours" / "tony" / "history").exists()
        assert not (tmp_path / "ours" / "old").exists()
        assert {path.name for path in tmp_path.iterdir()} == {"ours", "ours.lock"}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "without", [[], ["ensurepip", "import virtualenv"]], ids=["venv", "pip"]
    )
    def test_it_has_pip(self, without: List[str], tmp_path: Path) -> None:
        python = interpreter(tmp_path, without=without)
        done = bash(self.MAKE, str(python), str(tmp_path / "venv"))
        assert done.returncode == 0, done.stderr
        pip = [str(tmp_path / "venv" / "bin" / "python"), "-m", "pip", "--version"]
        assert subprocess.run(pip, capture_output=True).returncode == 0


class TestAirflowWithoutKerberos:
    INSTALL = (
        'source bin/_venv.sh; _install "$1" "$2" -r more.txt ||'
        ' _install_without_kerberos "$1" "$2" -r more.txt'
    )

    @pytest.fixture
    def venv(self, tmp_path: Path) -> Path:
        """Its pip notes what it is asked, and cannot build what the whole extra wants."""
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(
            f'#!/bin/bash\necho "$*" >>{tmp_path}/asked\n'
            'case "$*" in *[[,]airflow[],]*|*broken*) exit 1;; esac\n'
        )
        python.chmod(0o755)
        return tmp_path / "venv"

    def asked(self, venv: Path) -> List[str]:
        return (venv.parent / "asked").read_text().splitlines()

    def test_it_is_installed_all_the_same(self, venv: Path) -> None:
        done = bash(self.INSTALL, str(venv), "test,airflow")
        assert done.returncode == 0
        assert "apt-get install libkrb5-dev" in done.stderr
        first, second, third = self.asked(venv)
        assert first.endswith("--editable .[test,airflow] -r more.txt")
        assert second.endswith("--editable .[test,airflow-without-kerberos] -r more.txt")
        assert "--no-deps apache-airflow-providers-apache-hdfs>=" in third

    def test_no_other_list_asks_for_the_provider_that_needs_it(self) -> None:
        lists = re.findall(r"\S+/requirements\.txt", (CHECKOUT / "bin" / "test").read_text())
        assert lists
        for name in lists:
            packages = re.sub("(?m)^#.*", "", (CHECKOUT / name).read_text())
            assert not re.search("hdfs|kerberos|gssapi", packages), name

    def test_what_fails_for_another_reason_fails(self, venv: Path) -> None:
        assert bash(self.INSTALL, str(venv), "airflow,broken").returncode == 1
        assert len(self.asked(venv)) == 2

    def test_without_airflow_there_is_no_second_try(self, venv: Path) -> None:
        assert bash(self.INSTALL, str(venv), "broken").returncode == 1
        assert len(self.asked(venv)) == 1


class TestTry:
    """``bin/try`` in a checkout whose environment is made of scripts that do nothing."""

    VENV = (
        'source "$REAL/_venv.sh"; checkout=$PWD; checkout_venv() { mkdir -p "$1/bin";'
        " for name in python airflow tony; do"
        ' printf \'#!/bin/sh\\n\' >"$1/bin/$name"; chmod +x "$1/bin/$name"; done;'
        ' echo "PATH=$1/bin:\\$PATH" >"$1/bin/activate"; echo made >"$1/.made-from"; }'
    )

    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        (tmp_path / "bin").mkdir()
        shutil.copy(CHECKOUT / "bin" / "try", tmp_path / "bin")
        (tmp_path / "bin" / "_venv.sh").write_text(self.VENV)
        providers = tmp_path / "dags" / "examples" / "retraining" / "requirements.txt"
        providers.parent.mkdir(parents=True)
        providers.touch()
        return tmp_path / "bin" / "try"

    def test_tasks_find_the_server_at_another_port(self, script: Path) -> None:
        done = bash(
            'cd "$(dirname "$1")/.."; bin/try >next || exit; unset ${!AIRFLOW_@}; export "${@:2}";'
            ' source "$(sed -n "s/^  source //p" next)";'
            " echo $AIRFLOW__CORE__EXECUTION_API_SERVER_URL $AIRFLOW__API__BASE_URL",
            str(script),
            "AIRFLOW__API__PORT=12345",
            REAL=str(CHECKOUT / "bin"),
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [
            "http://localhost:12345/execution/",
            "http://localhost:12345",
        ]


class TestTheEnvironmentsOfFrameworkTests:
    @pytest.fixture
    def envs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The script in a checkout of its own, with one small environment to build."""
        checkout = tmp_path / "checkout"
        for name in (".ci/envs", "bin/_venv.sh"):
            (checkout / name).parent.mkdir(parents=True)
            shutil.copy(CHECKOUT / name, checkout / name)
        lists = checkout / "tests" / "envs"
        lists.mkdir(parents=True)
        (lists / "tiny.txt").write_text("# nothing\n")
        (lists / "tiny.sh").write_text('"$1" --version >"$(dirname "$1")/../built"\n')
        (lists / "late.txt").write_text("# nightly\n")
        monkeypatch.setenv("TONY_ENVS", str(tmp_path / "envs"))
        return checkout / ".ci" / "envs"

    def run(self, envs: Path, *names: str) -> subprocess.CompletedProcess[str]:
        return bash(f'"{envs}" "$@"', *names)

    def test_the_names_there_are_by_day(self, envs: Path) -> None:
        assert self.run(envs, "--list").stdout == "tiny\n"

    def test_the_names_there_are(self, envs: Path) -> None:
        assert self.run(envs, "--all").stdout == "late\ntiny\n"

    @pytest.mark.parametrize("name", ["other", "../tiny", "", "Tiny"])
    def test_an_unknown_name_is_refused_and_nothing_is_made(
        self, name: str, envs: Path, tmp_path: Path
    ) -> None:
        done = self.run(envs, "tiny", name)
        assert done.returncode == 2
        assert f"no environment is called '{name}'; there are: late tiny" in done.stderr
        assert not (tmp_path / "envs").exists()

    @pytest.mark.slow
    def test_built_once_for_all_callers_and_again_after_an_interruption(
        self, envs: Path, tmp_path: Path
    ) -> None:
        both = [
            subprocess.Popen([envs, "tiny"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        outputs = [process.communicate() for process in both]
        assert [process.returncode for process in both] == [0, 0], outputs
        ((folder,),) = {tuple(out.decode().split()) for out, _ in outputs}
        assert sum(err.count(b"envs: building") for _, err in outputs) == 1
        assert list(Path(folder).rglob("pip/__pycache__/*.pyc"))
        assert (Path(folder) / "built").read_text().startswith("Python 3")

        (Path(folder) / ".tony-env-complete").unlink()
        (Path(folder) / "half-done").touch()
        again = self.run(envs, "tiny")
        assert again.stdout.split() == [folder]
        assert not (Path(folder) / "half-done").exists()
        assert "building" not in self.run(envs, "tiny").stderr

        (envs.parent.parent / "tests" / "envs" / "tiny.txt").write_text("# still nothing\n")
        assert self.run(envs, "tiny").stdout.split() != [folder]


class TestTheStages:
    """``.ci/run`` and ``.ci/night`` in a checkout in which everything is soon done."""

    HERE = ("git", "flock", "mvn", "chromium", "krb5-config", "gcc", "cmake", "c++", "make")
    HERE += ("pg_ctlcluster", "redis-server")
    TEST_SUMMARY = """\
#!/bin/bash
(IFS="|"; echo "$*" >>asked)
case "$*" in
    --version) exit 0 ;;
    *"${NONE:-nothing}"*) exit 5 ;;
    *"${BROKEN:-nothing}"*) exit 2 ;;
    *"${BAD:-nothing}"*) echo "RERUN tests/test_one.py::test_one - late"
        echo "== 1 failed, 2 passed, 1 rerun in 0.10s =="; exit 1 ;;
esac
echo "======== 2 passed, 1 skipped in 61.10s (0:01:01) ========"
"""

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        folder = tmp_path / "checkout"
        (folder / ".ci").mkdir(parents=True)
        for name in ("run", "night", "_stages.sh"):
            shutil.copy(CHECKOUT / ".ci" / name, folder / ".ci" / name)
        nothing = "#!/bin/sh\n"
        programs = {
            "bin/test": self.TEST_SUMMARY,
            ".ci/envs": "#!/bin/sh\ncase $1 in --*) echo tiny; echo other;; esac\n",
            ".venv-try/bin/activate-tony": "airflow() { :; }\n",
            **dict.fromkeys(("bin/try", "bin/hadoop-sandbox", "venv/bin/python"), nothing),
            **dict.fromkeys([f"path/{name}" for name in (*self.HERE, "apt-get")], nothing),
        }
        for name, text in programs.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder

    def run(self, checkout: Path, name: str, **env: str) -> subprocess.CompletedProcess[str]:
        return bash(
            f'"$1/.ci/{name}"',
            str(checkout),
            PATH=f"{checkout}/path:{os.environ['PATH']}",
            PYTHON=sys.executable,
            TMPDIR=str(checkout),
            TONY_VENV=str(checkout / "venv"),
            TONY_JAVA_HOME=str(checkout),
            **env,
        )

    def expressions(self, checkout: Path) -> Set[str]:
        """What it asked for by markers; "" is the default."""
        asked = [line.split("|") for line in (checkout / "asked").read_text().splitlines()]
        (checkout / "asked").unlink()
        return {
            words[words.index("-m") + 1] if "-m" in words else ""
            for words in asked
            if words != ["--version"] and "-k" not in words
        }

    def test_what_became_of_each_and_the_sum_of_the_tests(self, checkout: Path) -> None:
        done = self.run(checkout, "run")
        assert (done.returncode, done.stderr) == (0, "")
        summary = done.stdout.split("===== stages\n")[1].splitlines()
        names = ["system-packages", "set-up", "lint", "format", "types", "tests", "try"]
        names += ["environments", "frameworks", "slow", "airflow", "hadoop", "azkaban", "cluster"]
        assert [line.split()[0] for line in summary[:-1]] == names
        assert all(line.endswith(" s   ok") for line in summary[:-1]), summary
        assert re.fullmatch(r"=+ 10 passed, 5 skipped in [\d.]+s \(0:00:\d\d\) =+", summary[-1])
        assert not list(checkout.glob("tony-ci.*"))

    def test_a_failed_stage_is_reported_and_the_others_run(self, checkout: Path) -> None:
        bad = {"NONE": "-m frameworks", "BROKEN": "-m slow", "BAD": "-m cluster"}
        done = self.run(checkout, "run", **bad)
        assert done.returncode == 1
        summary = done.stdout.split("===== stages\n")[1].splitlines()
        ends = {line.split()[0]: line.split(" s   ")[1] for line in summary if " s   " in line}
        assert {name: end for name, end in ends.items() if end != "ok"} == {
            "frameworks": "no such tests",
            "slow": "FAILED: exit code 2",
            "cluster": "FAILED: exit code 1",
        }
        assert summary[-2] == "tried twice: tests/test_one.py::test_one - late"
        assert re.fullmatch(r"=+ 1 failed, 6 passed, 2 skipped, 1 error in .*", summary[-1])

    def test_every_test_is_run_by_day_or_by_night(
        self, checkout: Path, pytestconfig: pytest.Config
    ) -> None:
        options = pytestconfig.getini("addopts")
        default = options[options.index("-m") + 1]
        by_day = self.run(checkout, "run")
        day = self.expressions(checkout)
        assert by_day.returncode == 0 and "" in day
        by_night = self.run(checkout, "night")
        night = self.expressions(checkout)
        assert by_night.returncode == 0, by_night.stdout
        assert "\n===== env-tiny\n" in by_night.stdout
        assert "\n===== gpu\n" not in by_night.stdout  # where there is one, as shown below
        asked = {expression or default for expression in day | night}
        names = sorted(set(re.findall(r"\w+", " ".join(asked))) - {"and", "or", "not", "gpu"})
        assert {"nightly", "cluster", "frameworks", "slow", "airflow"} <= set(names)
        for has in itertools.product([False, True], repeat=len(names)):
            marked = dict(zip(names, has, strict=True))
            assert any(eval(one, {}, {**marked, "gpu": False}) for one in asked), (
                "no stage runs what is marked " + ", ".join(name for name in names if marked[name])
            )

    def test_a_gpu_is_used_by_night_where_there_is_one(self, checkout: Path) -> None:
        done = self.run(checkout, "night", TONY_GPU_PYTHON=str(checkout / "bin" / "test"))
        assert "\n===== gpu\n" in done.stdout
        assert "-m|pytest|-m|gpu|tests/gpu" in (checkout / "asked").read_text()
