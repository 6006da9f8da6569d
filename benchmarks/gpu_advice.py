"""What TonY advises of jobs that use a GPU well and badly. Needs one, and PyTorch for CUDA.

    python benchmarks/gpu_advice.py [--seconds 50] [--only idle,starved,launches,small,right,hangs]

The jobs are those of ``tests/gpu/advice_cases.py``, which says what each does. A line says what was
advised, and whether it is what was expected.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import Home, Submitted

from tests.gpu import advice_cases as cases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*cases.ADVISED, cases.HANGS]
    parser.add_argument("--seconds", type=float, default=cases.SECONDS, help="of each job")
    parser.add_argument("--only", default=",".join(every), help="some of them")
    args = parser.parse_args()
    chosen = args.only.split(",")
    wrong = 0
    with Home() as home:
        for name in every:
            if name in chosen:
                line = run(home, name, args.seconds)
                print(json.dumps(line), flush=True)
                wrong += line["verdict"] != "held"
    sys.exit(1 if wrong else 0)


def run(home: Home, name: str, seconds: float) -> Dict[str, Any]:
    """Run one, and judge what is known of it afterwards."""
    command: List[str] = [sys.executable, str(cases.PROGRAM), name, str(seconds)]
    with Submitted(home, 1, command, **cases.settings_of(name)) as job:
        code = job.process.wait(seconds + 120)
        app_id = job.app_id
    folder = home.path / "home"
    if name == cases.HANGS:
        known = cases.describe_hang(folder, app_id)
        held = bool(code) and bool(known.pop("is_expected"))
        return {"job": name, "verdict": "held" if held else "missed", "exit_code": code, **known}
    found = cases.advice_of(name, folder, app_id)
    held = code == 0 and cases.is_expected(name, found)
    advised = [each.to_json() for each in found]
    return {"job": name, "verdict": "held" if held else "missed", "advised": advised}


if __name__ == "__main__":
    main()
