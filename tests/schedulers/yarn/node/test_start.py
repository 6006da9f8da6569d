"""What YARN starts: from its environment and credentials to our verbs and programs."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedulers.standin import make_runtime
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.local import LocalFileSystem
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.launch import PUBLIC, Launch
from tony_core.job.spec import Docker
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.launch_script import quote_word
from tony_core.schedulers.yarn.master.launch_context import LaunchContexts, LaunchError
from tony_core.schedulers.yarn.node import find_master, start

SECRET = bytes(range(32))
SITE = job_credentials.ExecutorCredentials(
    {"fs.defaultFS": "hdfs://lake"}, "ada", "hdfs://lake/apps/a"
)
CONTAINER = "container_e17_1700000000000_0042_01_000003"


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    return make_runtime(tmp_path / "runtime")


def node(
    folder: Path, launch: Launch, more: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """What a NodeManager does with a launch: a script with exports and the command."""
    work, logs = folder / "work", folder / "logs"
    work.mkdir()
    logs.mkdir()
    launch.credentials.write(str(folder / "tokens"))
    env = {
        "CONTAINER_ID": CONTAINER,
        "NM_HOST": "node7",
        "LOG_DIRS": f"{logs},/elsewhere",
        "HADOOP_TOKEN_FILE_LOCATION": str(folder / "tokens"),
        **launch.environment,
        **more,
    }
    (command,) = launch.command
    lines = [f'export {name}="{value}"' for name, value in env.items()]
    lines.append(f'exec /bin/bash -c "{command.replace("<LOG_DIR>", str(logs))}"')
    script = folder / "launch_container.sh"
    script.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["/bin/bash", str(script)], cwd=work, env={}, timeout=60)
    texts = [(logs / name).read_text() for name in ("executor.stdout", "executor.stderr")]
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def contexts(runtime: Path, **more: object) -> LaunchContexts:
    given: Dict[str, object] = {"python": sys.executable, "runtime": str(runtime), **more}
    return LaunchContexts(**given)  # type: ignore[arg-type]


SHOW = (
    "import json, os, sys; e = os.environ; print(json.dumps("
    "{'env': dict(e), 'argv': sys.argv[1:], 'mode': os.stat(e['TONY_SECRET_FILE']).st_mode,"
    " 'secret': open(e['TONY_SECRET_FILE'], 'rb').read().hex()}))"
)


def test_a_program_finds_what_every_scheduler_gives(tmp_path: Path, runtime: Path) -> None:
    env = {"MINE": 'with "quotes" $HOME `id` \\ and\nlines', "TONY_NODE": "not this", "Ü": "ü"}
    wanted = container_pool.Launch((sys.executable, "-c", SHOW, "a b", "$x"), env, (), SECRET)
    launch = contexts(runtime, site=SITE.encode()).launch("worker", wanted)
    done = node(tmp_path, launch)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["argv"] == ["a b", "$x"]
    assert bytes.fromhex(printed["secret"]) == SECRET
    assert stat.S_IMODE(printed["mode"]) == 0o600
    found = printed["env"]
    assert found["MINE"] == env["MINE"]
    assert found["Ü"] == "ü"
    assert found["TONY_APP_ID"] == "application_1700000000000_0042"
    assert found["TONY_CONTAINER_ID"] == CONTAINER
    assert found["TONY_NODE"] == "node7"
    assert found["TONY_LOG_DIR"] == str(tmp_path / "logs")
    assert found["TONY_MASTER_FILE"] == str(tmp_path / "work" / ".tony-master.json")
    successor = json.loads(found["TONY_SUCCESSOR"])
    assert successor[1:] == ["-I", "-S", str(runtime), "yarn-find-master"]
    script = (tmp_path / "launch_container.sh").read_text()
    assert "quotes" not in script
    assert SECRET.hex() not in script


def test_python_finds_itself_where_the_node_exports_no_path(tmp_path: Path, runtime: Path) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    wanted = container_pool.Launch(("python3", "-c", show), {}, (), SECRET)
    launch = contexts(runtime, python="python3", site=SITE.encode()).launch("worker", wanted)
    done = node(tmp_path, launch)
    found = json.loads(done.stdout)
    successor = json.loads(found["TONY_SUCCESSOR"])
    assert os.access(successor[0], os.X_OK), successor
    assert os.path.dirname(successor[0]) in found["PATH"].split(":")


def test_further_names_of_a_file_are_links_in_the_containers_folder(
    tmp_path: Path, runtime: Path
) -> None:
    uri = "hdfs://lake/x/same"
    both = [Artifact(n, Use.RESOURCE, Kind.FILE, n, uri, "d", 7, 1234) for n in ("a b", "$c")]
    argv = (sys.executable, "-c", "import os; print(os.readlink('$c'))")
    launch = contexts(runtime).launch(
        "worker", container_pool.Launch(argv, {}, tuple(both), SECRET)
    )
    assert list(launch.files) == ["a b"]
    assert node(tmp_path, launch).stdout == "a b\n"


def test_what_cannot_be_started_is_reported(tmp_path: Path, runtime: Path) -> None:
    launch = contexts(runtime).launch("worker", container_pool.Launch(("no-such-program",), {}, ()))
    done = node(tmp_path, launch)
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_an_exit_code_goes_through(tmp_path: Path, runtime: Path) -> None:
    argv = (sys.executable, "-c", "raise SystemExit(77)")
    assert (
        node(
            tmp_path, contexts(runtime).launch("w", container_pool.Launch(argv, {}, ()))
        ).returncode
        == 77
    )


def test_our_own_verbs_run_in_the_same_process(tmp_path: Path) -> None:
    runtime = tmp_path / "some runtime"
    package = runtime / "tony_executor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(
        "import os, sys\n"
        "def main(argv):\n"
        "    print(argv, os.getpid() == int(os.environ['BASH_PID'] or 0))\n"
        "    return 5\n"
    )
    made = make_runtime(tmp_path / "base")
    (runtime / "tony_core").symlink_to((made / "tony_core").resolve())
    (runtime / "__main__.py").write_text((made / "__main__.py").read_text())
    argv = (sys.executable, "-I", "-S", "tony-runtime", "executor", "--master", "h:1")
    launch = contexts(runtime).launch("w", container_pool.Launch(argv, {}, (), SECRET))
    assert "tony-runtime" not in launch.command[0]  # as this site names it
    done = node(tmp_path, launch, {"BASH_PID": "$$"})
    assert done.stdout.strip() == "['--master', 'h:1'] True", done.stderr
    assert done.returncode == 5


def test_a_program_gets_the_tokens_and_nothing_else(tmp_path: Path) -> None:
    """Neither the container's secrets nor what makes a process the master."""
    hdfs = Token(b"who", b"pw", "HDFS_DELEGATION_TOKEN", "lake")
    held = Credentials({"a": Token(b"m", b"pw", "YARN_AM_RM_TOKEN"), "lake": hdfs}, {"s": SECRET})
    tokens, secrets = start.parse_credentials(held.encode())
    assert secrets == {"s": SECRET}
    path = str(tmp_path / "tokens")
    umask = os.umask(0)
    try:
        assert start.write_program_tokens(path, tokens) == path
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert Credentials.decode(Path(path).read_bytes()) == Credentials({"lake": hdfs})
    assert os.listdir(tmp_path) == ["tokens"]
    assert start.write_program_tokens(str(tmp_path / "none"), tokens[:1]) == ""
    assert os.listdir(tmp_path) == ["tokens"]


def test_the_executor_learns_of_the_programs_tokens(tmp_path: Path, runtime: Path) -> None:
    """Its own file, with the secrets, stays where the next master's address is looked for."""
    hdfs = Credentials({"lake": Token(b"who", b"pw", "HDFS_DELEGATION_TOKEN", "lake")})
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    wanted = container_pool.Launch((sys.executable, "-c", show), {}, (), SECRET)
    done = node(tmp_path, contexts(runtime, credentials=hdfs).launch("worker", wanted))
    env = json.loads(done.stdout)
    assert env["TONY_TOKEN_FILE"] == str(tmp_path / "work" / ".tony-tokens")
    assert env["HADOOP_TOKEN_FILE_LOCATION"] == str(tmp_path / "tokens")
    written = Path(env["TONY_TOKEN_FILE"])
    assert Credentials.decode(written.read_bytes()) == hdfs
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_outside_of_a_container_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(start.LOCATION, raising=False)
    assert start.main(["executor"]) == 2
    assert "does not run in a YARN container" in capsys.readouterr().err
    assert start.main(["shim"]) == 2
    assert "usage" in capsys.readouterr().err


WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))


@settings(max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=4))
def test_words_survive_two_shells(words: List[str]) -> None:
    quoted = " ".join(quote_word(text) for text in words)
    script = f"exec /bin/bash -c \"printf '%s\\\\0' {quoted}\""
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == words


def test_files_images_and_credentials() -> None:
    uri = "hdfs://lake/x/venv.tar.gz"
    venv = Artifact("venv", Use.VENV, Kind.ARCHIVE, "venv.tar.gz", uri, "d", 7, 1234)
    hdfs = Token(b"who", b"pw", "HDFS_DELEGATION_TOKEN", "lake")
    made = LaunchContexts(
        images={"worker": Docker("ml:1", ("/data:/data",))},
        visibility={uri: PUBLIC},
        site=SITE.encode(),
        credentials=Credentials({"lake": hdfs}),
    )
    argv = ("python3", "-I", "-S", "tony-runtime", "executor", "--master", "h:1")
    launch = made.launch("worker", container_pool.Launch(argv, {"A": "b"}, (venv,), SECRET))
    assert launch.command == (
        "export PATH; exec python3 -I -S tony-runtime/__main__.py yarn-start executor --master h:1"
        " 1><LOG_DIR>/executor.stdout 2><LOG_DIR>/executor.stderr",
    )
    file = launch.files["venv"]
    assert (file.location, file.size, file.timestamp_ms, file.archive, file.visibility) == (
        uri, 7, 1234, True, PUBLIC,
    )  # fmt: skip
    assert launch.environment["YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "ml:1"
    assert launch.environment["A"] == "b"
    assert launch.credentials.tokens == {"lake": hdfs}
    assert launch.credentials.secrets[job_credentials.SECRET] == SECRET
    assert job_credentials.read_executor_credentials(launch.credentials.secrets) == SITE
    assert made.launch("ps", container_pool.Launch(argv, {}, ())).environment == {}


def test_what_the_nodes_script_would_change_stays_out_of_the_launch_context() -> None:
    """It reaches the executor all the same, by the credentials."""
    env = {"YARN_CONTAINER_RUNTIME_TYPE": "docker", "N": "1 2", "Ü": "ü", "A.B": "c", "P": "$X:/y"}
    launch = LaunchContexts().launch("worker", container_pool.Launch(("true",), env, ()))
    assert launch.environment == {"YARN_CONTAINER_RUNTIME_TYPE": "docker", "N": "1 2"}
    assert launch.credentials.secrets[start.ALIAS] == start.pack(env, ("true",))


def test_a_node_learns_who_may_see_and_end_the_job() -> None:
    made = LaunchContexts(view_acl="bob", modify_acl="carol ops")
    launch = made.launch("worker", container_pool.Launch(("true",), {}, ()))
    assert (launch.view_acl, launch.modify_acl) == ("bob", "carol ops")


def test_a_roles_image_counts_more_than_a_variable() -> None:
    env = {"YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": "of:all"}
    made = LaunchContexts(images={"worker": Docker("of:workers")})
    for role, image in (("worker", "of:workers"), ("ps", "of:all")):
        found = made.launch(role, container_pool.Launch(("true",), env, ())).environment
        assert found["YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == image


def test_folders_are_refused() -> None:
    folder = Artifact("src", Use.SOURCE, Kind.FOLDER, "src", "/home/ada/src")
    with pytest.raises(LaunchError, match="src is a folder"):
        LaunchContexts().launch("worker", container_pool.Launch(("true",), {}, (folder,)))


@pytest.mark.parametrize(
    ("container", "application"),
    [
        ("container_1700000000000_0042_01_000003", "application_1700000000000_0042"),
        (CONTAINER, "application_1700000000000_0042"),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_which_application_a_container_is_of(container: str, application: str) -> None:
    assert start.application_id_of(container) == application


def test_the_next_master_is_found(tmp_path: Path) -> None:
    files, state, target = LocalFileSystem(), tmp_path / "state", tmp_path / "master.json"
    assert find_master.copy_master_address(files, str(state), str(target)) == find_master.OVER
    state.mkdir()
    assert find_master.copy_master_address(files, str(state), str(target)) == find_master.NOT_YET
    (state / "master.json").write_text('{"host": "h"}')
    assert find_master.copy_master_address(files, str(state), str(target)) == find_master.FOUND
    assert target.read_text() == '{"host": "h"}'
    assert find_master.copy_master_address(files, str(state), str(target)) == find_master.NOT_YET
    (state / "master.json").write_text("x" * 100_000)
    assert find_master.copy_master_address(files, str(state), str(target)) == find_master.NOT_YET


@pytest.mark.parametrize("module", [start, find_master, job_credentials])
def test_old_pythons_can_run_it(module: object) -> None:
    path = Path(str(getattr(module, "__file__", "")))
    ast.parse(path.read_text(), feature_version=(3, 8))
