"""YARN's frame around a dead master's words comes off; nothing else does."""

from __future__ import annotations

import pytest

from tony_core.schedulers.yarn.diagnostics import explain_master_failure

FRAME = """Application application_1795268219684_0042 failed {times} times in previous 600000 \
milliseconds due to AM Container for appattempt_1795268219684_0042_000002 exited with  \
exitCode: {code}
Failing this attempt.Diagnostics: [2026-11-21 13:57:53.697]{why}
Container id: container_1795268219684_0042_02_000001
Exit code: {code}

[2026-11-21 13:57:53.700]Container exited with a non-zero exit code {code}. Error \
file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
{shell}
Last 4096 bytes of stderr :
{output}


For more detailed output, check the application tracking page: http://rm:8088/cluster/app/x \
Then click on links to logs of each attempt.
. Failing the application."""


def frame(output: str = "", shell: str = "", code: int = 1, times: int = 2) -> str:
    why = "Exception from container-launch."
    return FRAME.format(output=output, shell=shell, code=code, times=times, why=why)


def test_the_masters_own_diagnostics() -> None:
    text = explain_master_failure(frame("the job's folder is gone\nValueError: no"))
    assert text == (
        "the job's master died (exit code 1, 2 times)\nits last output:\n"
        "the job's folder is gone\nValueError: no"
    )


def test_the_shells_output_when_there_was_no_master() -> None:
    text = explain_master_failure(frame(shell="bash: /opt/none: No such file", code=127, times=1))
    assert text.splitlines()[0] == (
        "the job's master died (exit code 127): tony.runtime.python names an interpreter that"
        " the nodes do not have"
    )
    assert text.splitlines()[-1] == "bash: /opt/none: No such file"


def test_why_the_node_could_not_start_it() -> None:
    text = explain_master_failure(
        "Application application_1_2 failed 1 times due to AM Container for appattempt_1_2_000001"
        " exited with  exitCode: -1000\nFailing this attempt.Diagnostics: [2026-11-21 13:00:00.1]"
        "File does not exist: hdfs://nn/user/me/x.tar\njava.io.FileNotFoundException: x\n"
        "For more detailed output, check the page\n. Failing the application."
    )
    assert text == (
        "the job's master could not be started: hdfs://nn/user/me/x.tar was removed after the"
        " submit: submit again"
    )


@pytest.mark.parametrize("text", ["", "worker:0 failed", "Application killed by user ada."])
def test_everything_else_stays(text: str) -> None:
    assert explain_master_failure(text) == text


def test_a_long_story_is_cut_at_its_beginning() -> None:
    text = explain_master_failure(frame("\n".join(f"line {number}" for number in range(100))))
    assert text.endswith("line 99")
    assert "line 10\n" not in text
