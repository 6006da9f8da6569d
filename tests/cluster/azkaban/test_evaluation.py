"""What a server evaluates of the properties that a job leaves for the next one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

from tests.cluster.azkaban.fixture import GetFlows, Servers
from tests.cluster.azkaban.installing import PATHS
from tony_azkaban.outputs import inert

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EVALUATES = Path(__file__).with_name("Evaluate.java")
VALUES = [
    "$(1+1)",
    "x $('$')(1+1) y",
    "$('a'.getClass().getName())",
    "\\$(1+1)",
    "$$(1+1)(1)",
    "${word}",
    "$${given}(1)",
    "$(",
    "$(date)",
    "$(hostname -f)",
    "$(date +%F)",
    "costs $5",
    "it's 'quoted' \\",
]


def evaluated(servers: Servers, values: List[str], folder: Path) -> List[Tuple[str, str]]:
    """Each on 2.5, by its own classes, which write logs into the folder, and on 3.x."""
    encoded = "".join(value.encode("utf-16-be").hex() + "\n" for value in values)
    words = [str(servers.jars.java_home / "bin" / "java"), "-cp", f"{servers.jars.lib}/*"]
    done = subprocess.run(
        [*words, str(EVALUATES)],
        cwd=folder,
        input=encoded,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # Among the answers the evaluator logs what it does not know: lines with blanks.
    lines = [line for line in done.stdout.splitlines() if " " not in line]
    shown = [bytes.fromhex(line).decode("utf-16-be") for line in lines]
    return list(zip(shown[::2], shown[1::2], strict=True))


def test_no_version_evaluates_what_we_write(azkaban_servers: Servers, tmp_path: Path) -> None:
    raw = dict(zip(VALUES, evaluated(azkaban_servers, VALUES, tmp_path), strict=True))
    assert raw["$(1+1)"] == ("$(1+1)", "2")  # as 3.x does, and 2.5 does not
    assert raw["${word}"] == ("the job fails", "the job fails")
    # A command that is meant for a shell, as docs/azkaban.md says.
    assert raw["$(date)"][1] == "$(date)"
    assert raw["$(hostname -f)"][1] == "0"
    assert raw["$(date +%F)"][1] == "the job fails"
    written = [inert(value) for value in VALUES]
    assert evaluated(azkaban_servers, written, tmp_path) == [(text, text) for text in written]


def test_a_result_full_of_expressions(azkaban: GetFlows) -> None:
    """The next job starts, and has what was given."""
    given = {"text": "$(1+1) ${word} it's", "more": ["${azkaban.flow.execid}"]}
    flows = azkaban()
    program = f"import tony\ntony.report(step=1, metrics={{'$(2)': 1}})\ntony.result({given!r})\n"
    # Python reads the file by itself: what is printed is what the property holds.
    shows = (
        "import os\nfrom tony_azkaban.java_properties import load\n"
        "with open(os.environ['JOB_PROP_FILE'], 'rb') as file:\n"
        "    print('given', load(file.read())['tony_result.value'])\n"
    )
    run = flows.start(
        {
            "train.job": flows.job("python3 train.py", src_dir="src"),
            "src/train.py": program,
            "show.py": shows,
            "next.job": {
                "type": "command",
                "dependencies": "train",
                "command": f"{sys.executable} show.py",
                "env.PYTHONPATH": PATHS,
            },
        },
        "next",
    ).ends()
    (line,) = (line for line in run.log_lines("next") if line.startswith("given "))
    assert json.loads(line.removeprefix("given ")) == given
