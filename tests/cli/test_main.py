"""The command line's manners: usage, did you mean, exit codes, one message and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tony
from tests.client.scripted import Scripted, status
from tony_core.cli.verbs import VERBS, module_of, parser_of
from tony_core.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sbumit"], "did you mean submit?"),
        (["--verbose", "list"], "a verb's options follow it"),
        (["submit", "--src_dri", "x"], "there is no option --src_dri; did you mean --src_dir?"),
        (["submit", "--srcdir=x"], "did you mean --src_dir?"),
        (["submit", "train.py"], "unexpected argument 'train.py'"),
        (["submit", "--executes"], "--executes: expected one argument"),
        (["submit", "--executes", "--src-dir", "x"], "--executes: expected one argument"),
        (["list", "--state", "BROKEN"], "invalid choice"),
        (["list", "--limit", "many"], "'many' is not a whole number"),
        (["history"], "required: VERB"),
        (["history", "lst"], "there is no verb 'lst'; did you mean list?"),
        (["history", "show", "--metircs"], "did you mean --metrics?"),
        (["gc", "--older-than", "soon"], "soon"),
        (["completion", "ksh"], "invalid choice"),
    ],
)
def test_usage_is_one_message_and_exit_code_2(tony: Tony, words: list[str], message: str) -> None:
    done = tony(*words)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.startswith("tony: ")
    assert done.err.count("\n") == 1


def test_no_arguments_at_all(tony: Tony) -> None:
    done = tony()
    assert (done.code, done.out) == (2, "")
    assert "usage: tony VERB" in done.err


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_its_module_and_its_help(tony: Tony, verb: str) -> None:
    assert callable(module_of(verb).run)
    done = tony(verb, "--help")
    assert done.code == 0
    assert f"usage: tony {verb}" in done.out
    assert "--debug" in done.out
    assert tony("help", verb).out == done.out


def test_the_overview_names_every_verb(tony: Tony) -> None:
    out = tony("--help").out
    assert all(f"  {verb} " in out for verb in VERBS)


SUBMIT = (
    "executes task_params src_dir python_venv python_binary_path conf_file conf shell_env"
    " container_env hdfs_classpath sidecar_tensorboard_log_dir scheduler"
).split()


@pytest.mark.parametrize("word", SUBMIT)
@pytest.mark.parametrize("form", ["{} value", "{}=value"])
def test_every_option_of_submit_in_both_spellings(word: str, form: str) -> None:
    parser = parser_of("submit")
    for name in (word, word.replace("_", "-")):
        words = form.format(f"--{name}").split()
        found = getattr(parser.parse_args(words), word)
        assert found in ("value", ["value"])


@pytest.mark.parametrize("word", ["detach", "dry_run", "json", "debug"])
def test_the_switches_too(word: str) -> None:
    parser = parser_of("submit")
    for name in (word, word.replace("_", "-")):
        assert getattr(parser.parse_args([f"--{name}"]), word) is True


def test_free_text_may_look_like_an_option() -> None:
    args = parser_of("submit").parse_args(["--task-params", "--epochs", "--executes", "-m x"])
    assert (args.task_params, args.executes) == ("--epochs", "-m x")
    args = parser_of("submit").parse_args(["--conf=a=b", "--conf", "c=--d_e", "--task_params", ""])
    assert (args.conf, args.task_params) == (["a=b", "c=--d_e"], "")


def test_a_bad_job_is_all_its_problems(tony: Tony, scripted: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "job.xml"
    file.write_text(
        "<configuration>\n<property><name>tony.worker.instnces</name><value>2</value></property>\n"
        "<property><name>tony.worker.memory</name><value>much</value></property>\n"
        "</configuration>\n"
    )
    done = tony("submit", "--conf_file", str(file), "--executes", "x", "--conf", "nonsense")
    assert (done.code, done.out) == (2, "")
    assert "problems:" in done.err or "--conf" in done.err
    assert not Path(scripted.root).exists()
    assert scripted.submitted == []


def test_a_scheduler_that_is_not_there_is_2(tony: Tony) -> None:
    done = tony("list", "--scheduler", "nowhere")
    assert done.code == 2
    assert "there is no scheduler 'nowhere'" in done.err


def test_an_application_that_is_not_there_is_2(tony: Tony, scripted: Scripted) -> None:
    for verb in ("status", "describe", "logs", "attach", "kill"):
        done = tony(verb, "nope")
        assert done.code == 2, verb
        assert "no application 'nope'" in done.err
        assert done.out == ""


def test_an_internal_error_names_itself_and_the_option_for_more(
    tony: Tony, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(scripted, "list", broken)
    done = tony("list")
    assert done.code == 70
    assert "internal error: ZeroDivisionError: oops" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in tony("list", "--debug").err
    assert "no option" not in tony("config", "keys", "--debug").err


def run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "executor")])}
    return subprocess.run(
        [sys.executable, "-m", "tony_core.cli.main", *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=CHECKOUT,
        **more,  # type: ignore[call-overload]
    )


def test_the_version_needs_next_to_nothing() -> None:
    """How soon it comes is the benchmarks' matter; what would hold it up is this one's."""
    assert run("--version").stdout == f"tony {__version__}\n"
    code = (
        "import sys; from tony_core.cli.main import main; main(['--version']);"
        "print(sorted({'argparse', 'dataclasses', 'json', 'socket', 'tony_core.client',"
        " 'tony_core.job', 'tony_core.schedulers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_a_reader_that_goes_away_is_no_error(scripted: Scripted) -> None:
    code = (
        "import sys; from tony_core.cli import output, list as verb; from tony_core.cli.main import"
        " main\ndef run(args):\n    for n in range(100000): output.line('x' * 80)\n    return 0\n"
        "verb.run = run\nsys.exit(main(['list']))"
    )
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb_and_option(tony: Tony, shell: str) -> None:
    done = tony("completion", shell)
    assert done.code == 0
    for word in (*VERBS, "src", "sidecar", "dry", "older", "show"):
        assert word in done.out


def test_the_bash_completion_works(tony: Tony, scripted: Scripted) -> None:
    script = tony("completion", "bash").out
    probe = (
        'tony() { echo app_1 app_2; }\nask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
        ' _tony; echo "${COMPREPLY[*]}"; }\n'
        "ask tony sub\nask tony submit --src\nask tony history sh\nask tony history show --met\n"
        "ask tony logs app\nask tony list --state SU\nask tony kill --al\n"
    )
    done = subprocess.run(["bash", "-c", script + "\n" + probe], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "submit",
        "--src-dir --src_dir",
        "show",
        "--metrics",
        "app_1 app_2",
        "SUBMITTED SUCCEEDED",
        "--all",
    ]


def test_the_newest_is_the_default_and_is_named(tony: Tony, scripted: Scripted) -> None:
    scripted.apps = {"a_1": status("a_1", submitted=1.0), "b_2": status("b_2", submitted=2.0)}
    done = tony("status")
    assert done.code == 0
    assert "b_2, the newest application" in done.err
    assert done.out.startswith("b_2 ")


def run_tony(*words: str, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, by the shell where its streams are to be odd."""
    command = [sys.executable, "-m", "tony_core.cli.main", *words]
    if shell:
        command = ["/bin/sh", "-c", " ".join(command) + shell]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )


def test_what_a_terminal_cannot_show_does_not_stop_us() -> None:
    done = run_tony("b\u00e4d", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith("tony: there is no verb 'b\\xe4d'")


def test_closed_streams_are_no_error() -> None:
    done = run_tony("list", shell=" >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_not_our_fault() -> None:
    done = run_tony("version", shell=" > /dev/full")
    assert done.returncode != 0
    assert "fault in tony" not in done.stderr
    assert "Traceback" not in done.stderr
