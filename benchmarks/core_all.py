"""Every figure of the core, and the table of them in docs/benchmarks.md.

    python benchmarks/core_all.py [--quick] [--only commands,start,...] [--lines FILE] [--write]

Runs each ``core_*.py`` in turn, some nine minutes in all, and prints their lines; ``--write`` puts
the table between the marks of the page, with the date, the machine and the command. ``--lines``
keeps the lines in a file, the day and the machine first; where the file is there already, nothing
is run and its lines are taken. Missed bars are named at the end.
When a part fails, the others are still run, and then it exits with 1: nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Tuple

from measuring import MISSED

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PARTS = ("commands", "start", "memory", "overhead", "detection", "scale")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the short form of each")
    parser.add_argument("--only", default=",".join(PARTS), help="some of them")
    parser.add_argument("--lines", type=Path, help="where the lines are kept, or are already")
    parser.add_argument("--write", action="store_true", help=f"bring {PAGE.name} up to date")
    args = parser.parse_args()
    if args.lines is not None and args.lines.exists():
        lines = args.lines.read_text().splitlines()
    else:
        lines, failed = run(args.only.split(","), args.quick)
        lines.insert(0, json.dumps({"measured": machine()}))
        if failed:
            sys.exit(f"not measured: {', '.join(failed)}; nothing is written")
        if args.lines is not None:
            args.lines.write_text("".join(line + "\n" for line in lines))
    measured, *figures = [json.loads(line) for line in lines]
    missed = [line["figure"] for line in figures if line.get("verdict") == MISSED]
    if missed:
        sys.stderr.write(f"missed their bars: {', '.join(missed)}\n")
    if args.write:
        write(measured["measured"], figures)


def run(parts: List[str], quick: bool) -> Tuple[List[str], List[str]]:
    """Each in a process of its own: the lines of all, and the parts that failed."""
    lines: List[str] = []
    failed: List[str] = []
    for part in parts:
        command = [sys.executable, str(HERE / f"core_{part}.py")]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.strip())
        if process.wait():
            failed.append(part)
        sys.stderr.write(f"{part}: {time.monotonic() - began:.0f} s\n")
    return lines, failed


def machine() -> str:
    """When and where."""
    return (
        f"Measured on {datetime.now(timezone.utc):%Y-%m-%d} by `python benchmarks/core_all.py"
        f" --write`, on {os.cpu_count()} cores ({processor()}), {platform.system()}"
        f" {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def write(measured: str, figures: List[Dict[str, Any]]) -> None:
    """Put the table onto the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert before and after, f"{PAGE} has lost its marks"
    PAGE.write_text(f"{before}{BEGIN}\n{table(measured, figures)}\n{END}{after}")


def table(measured: str, figures: List[Dict[str, Any]]) -> str:
    """As a page shows it."""
    low, high = (pick(line["load"] for line in figures) for pick in (min, max))
    lines = [
        f"{measured}; load average {low:g} to {high:g}.",
        "",
        "| figure | median | floor | bar | |",
        "|---|---|---|---|---|",
    ]
    for line in figures:
        unit = "" if line["unit"] == "ratio" else f" {line['unit']}"
        value = f"{shown(line['value'])}{unit}"
        if "low" in line:
            value += f" ({shown(line['low'])} to {shown(line['high'])})"
        floor = f"{shown(line['floor'])}{unit} ({line['floor_is']})" if "floor" in line else ""
        bar = line.get("bar", "")
        bar = f"{shown(bar)}{unit}" if isinstance(bar, (int, float)) else bar
        lines.append(
            f"| {line['figure']} | {value} | {floor} | {bar} | {line.get('verdict', '')} |"
        )
    return "\n".join(lines)


def shown(value: float) -> str:
    """Three digits that count."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def processor() -> str:
    """What the kernel calls it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
