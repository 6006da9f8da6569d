"""A job whose words shells, Java and XML have opinions about, on whatever it runs."""

from __future__ import annotations

import json
import re
from typing import Dict

from tests.cluster.azkaban.flows import Flows

ODD = "grüße \"double\" 'single' \\back $HOME `tick` ${x} %s ~ 漢字 🦆"
"""What shells, Java and XML have opinions about. Azkaban itself resolves ${...}."""

SHOWS = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "odd": os.environ.get("ODD"), **{
    name: os.environ.get(name) for name in sys.argv[1].split(",")}}))
"""


def shown(flows: Flows, app_id: str) -> Dict[str, object]:
    """What the program printed, in the log of its task."""
    log = flows.tony("logs", app_id, "--stream", "both").stdout
    (text,) = re.findall(r'{"argv".*', log)
    found: Dict[str, object] = json.loads(text)
    return found


def comes_through(flows: Flows) -> None:
    """A flow of one job: its words are the program's, and the name is the application's."""
    odd = ODD.replace("${x}", "$x")  # the server's own, and it fails the job for it
    name = "größe 漢字"
    run = flows.one(
        "python3 show.py ODD",
        files={"src/show.py": SHOWS},
        task_params='\'one word\' "two words" grüße \\"q\\"',
        **{"worker_env.ODD": odd, "tony.application.name": name},
    ).ends()
    output = shown(flows, run.app_id())
    assert output["odd"] == odd
    assert output["argv"] == ["ODD", "one word", "two words", "grüße", '"q"']
    assert flows.status(run.app_id())["name"] == name
