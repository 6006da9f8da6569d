"""Why a node could not bring a container's files: YARN's words, and ours."""

from __future__ import annotations

from typing import Optional

import pytest

from tony_core.exit_causes import ExitCause
from tony_core.schedulers.yarn import diagnostics
from tony_core.schedulers.yarn.diagnostics import explain_localization_error
from tony_core.schedulers.yarn.master.container_exits import clean_diagnostics, describe_exit

STORE = "hdfs://host:8020/user/u/.tony"
OBJECT = f"{STORE}/store/objects/{'ab' * 32}/content.tar"

TRACE = """\
\tat org.apache.hadoop.yarn.util.FSDownload.verifyAndCopy(FSDownload.java:289)
\tat org.apache.hadoop.yarn.util.FSDownload.access$000(FSDownload.java:72)
\tat java.base/java.security.AccessController.doPrivileged(AccessController.java:712)
Caused by: java.io.IOException: another
\t... 7 more
"""
MESSAGE = (
    'Resource {0} changed on src filesystem - expected: "2026-11-21T14:00:00.000+0000", was:'
    ' "2026-11-21T14:01:00.000+0000", current time: "2026-11-21T14:02:00.000+0000"'
)
CHANGED = f"[2026-11-21 14:02:00.100]{MESSAGE}\njava.io.IOException: {MESSAGE}\n{TRACE}\n"
DAMAGED = (
    f"the copy that was staged at {OBJECT} is damaged: it was written to after the submit;"
    f" tony gc --scheduler yarn --verify --remove --staging-dir {STORE} removes it:"
    " then submit again"
)
DENIED = (
    'Permission denied: user=eve, access=EXECUTE, inode="/data/x.tar":root:supergroup:drwx------'
)
HAS_EXPIRED = (
    "Token  has expired, current time: 2026-11-25 14:03:22,092+0000 expected renewal time:"
    " 2026-11-25 14:02:49,032+0000"
)
ENDED = (
    f"[2026-11-25 14:03:22.281]{HAS_EXPIRED}\norg.apache.hadoop.ipc.RemoteException("
    f"org.apache.hadoop.security.token.SecretManager$InvalidToken): {HAS_EXPIRED}\n"
)
FAILED = """\
Application application_1_0001 failed 1 times (global limit =2; local limit is =1) due to AM \
Container for appattempt_1_0001_000001 exited with  exitCode: -1000
Failing this attempt.Diagnostics: {0}\
For more detailed output, check the application tracking page: http://rm:8088/cluster/app/x \
Then click on links to logs of each attempt.
. Failing the application."""


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (CHANGED.format(OBJECT), DAMAGED),
        (
            CHANGED.format("hdfs://host:8020/data/x.tar"),
            "hdfs://host:8020/data/x.tar was written to after the submit: submit again",
        ),
        (
            f"File does not exist: {OBJECT}\njava.io.FileNotFoundException: {OBJECT}\n{TRACE}",
            f"{OBJECT} was removed after the submit: submit again",
        ),
        (
            ENDED + TRACE,
            "the tokens of its submit have ended, by which a node localizes files that not all"
            " users can read: submit again",
        ),
        (
            f"{DENIED}\n\tat org.apache.x(X.java:1)\n",
            "the nodes fetch files as eve, who has no permission to read /data/x.tar; its owner"
            " root can change its mode (drwx------)",
        ),
        ("No space available in any of the local directories.", None),
    ],
)
def test_one_sentence_has_the_remedy(text: str, means: Optional[str]) -> None:
    assert explain_localization_error(text) == means


def test_a_tasks_error_has_no_stack_trace() -> None:
    code, cause, words = describe_exit(-1000, False, CHANGED.format(OBJECT))
    assert words == f"the node could not localize its files: {DAMAGED}"
    assert (code, cause) == (127, ExitCause.FILES), "another node would not fare better"


def test_a_masters_error_has_no_stack_trace() -> None:
    text = diagnostics.explain_master_failure(FAILED.format(CHANGED.format(OBJECT)))
    assert text == f"the job's master could not be started: {DAMAGED}"


UNKNOWN = (
    "[2026-11-21 14:02:00.100]too odd\njava.io.IOException: too odd\n"
    "\tat org.x.Y.z(Y.java:1)\nCaused by: java.io.IOException: too odd\n\t... 7 more\n"
)


def test_what_we_have_no_words_for_has_none_either() -> None:
    assert clean_diagnostics(UNKNOWN) == "too odd"
    assert (
        describe_exit(-1000, False, UNKNOWN)[2] == "the node could not localize its files: too odd"
    )
    text = diagnostics.explain_master_failure(FAILED.format(UNKNOWN))
    assert (
        text
        == "the job's master could not be started: its node could not localize its files\ntoo odd"
    )


def test_a_cause_with_more_detail_stays() -> None:
    diagnostics = UNKNOWN.replace("Caused by: java.io.IOException: too", "Caused by: a.b.C: very")
    assert clean_diagnostics(diagnostics) == "too odd\nCaused by: a.b.C: very odd"


def test_a_stack_trace_that_the_program_printed_stays() -> None:
    diagnostics = f"[2026-11-21 14:02:00.100]x\nLast 4096 bytes of executor.stderr :\nE: e\n{TRACE}"
    assert clean_diagnostics(diagnostics) == f"x\nits last output:\nE: e\n{TRACE}".rstrip()
