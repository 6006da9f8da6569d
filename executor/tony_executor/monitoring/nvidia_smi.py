"""The output of nvidia-smi: which GPUs there are, and how busy they are.

Only :class:`GpuMetrics` starts it, now and then and without waiting for it, and never where there
is none.
"""

from __future__ import annotations

import math
import os
import re
from typing import Dict, List, Mapping, Optional, Set

from tony_core import measures
from tony_core.protocol.reactor import Reactor
from tony_executor.launch.spawn import CommandResult, CommandRun

EVERY_S = 45.0
"""nvidia-smi takes 30 to 100 ms of a core, and watching a task may cost 0.2 % of one."""
EARLY_EVERY_S = 10.0  # at first: users look, and short jobs get their samples
EARLY_S = 120.0
LOOKS = 4  # in the time after which a program that stands still has stalled

_TIMEOUT_S = 20.0
_FIELDS = ("utilization.gpu", "memory.used", "memory.total")
_MOST = 1e15
_DEVICE = "/dev/nvidiactl"
_GPU = r"GPU \d+: .*\(UUID: ([\w-]+)\)\s*$"
_SLICE = r"\s+MIG .*\(UUID: ([\w/-]+)\)\s*$"
_PLACES = ("/usr/bin", "/usr/local/nvidia/bin")
NONE = ("", "-1", "NoDevFiles", "none", "void")  # values of CUDA_VISIBLE_DEVICES for no GPU


def command(environment: Mapping[str, str], given: str = "") -> Optional[List[str]]:
    """The command that measures our GPUs; None where there are none."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in NONE:
        return None
    if not given and not os.path.exists(_DEVICE):
        return None
    program = find_program(environment, given)
    if not program or not os.access(program, os.X_OK):
        return None
    query = [
        program,
        "--query-gpu=" + ",".join(_FIELDS),
        "--format=csv,noheader,nounits",
    ]
    return [*query, "-i", visible] if visible else query


def parse(text: str) -> Dict[str, float]:
    """The means and sums over our GPUs; [N/A] is left out."""
    columns: Dict[str, List[float]] = {name: [] for name in _FIELDS}
    rows = [line for line in text.splitlines() if line.count(",") == len(_FIELDS) - 1]
    for line in rows:
        for name, word in zip(_FIELDS, line.split(",")):
            try:
                value = float(word)
            except ValueError:
                continue
            if 0 <= value < _MOST:  # a message with NaN or infinity would be refused
                columns[name].append(value)
    values: Dict[str, float] = {}
    busy, used, whole = (columns[name] for name in _FIELDS)
    if busy:
        values[measures.GPU_PERCENT] = round(sum(busy) / len(busy), 1)
    if used:
        values[measures.GPU_MEMORY_MB] = sum(used)
    if whole:
        values[measures.GPU_MEMORY_TOTAL_MB] = sum(whole)
    if rows:
        values[measures.GPUS] = float(len(rows))
    return values


def look_interval(age_s: float, stall_timeout_s: Optional[float] = None) -> float:
    """How long to wait from one look to the next, by how long the program runs.

    ``stall_timeout_s``: the look decides whether the program stands still for so long.
    """
    every_s = EARLY_EVERY_S if age_s < EARLY_S else EVERY_S
    if stall_timeout_s is None:
        return every_s
    return min(every_s, max(EARLY_EVERY_S, stall_timeout_s / LOOKS))


def find_program(environment: Mapping[str, str], given: str = "") -> Optional[str]:
    """The path of nvidia-smi; None where there is none."""
    if given:
        return given
    for folder in [*environment.get("PATH", "").split(os.pathsep), *_PLACES]:
        candidate = os.path.join(folder, "nvidia-smi")
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None


def parse_devices(text: str) -> List[str]:
    """The UUIDs in the output of ``nvidia-smi -L``; of a GPU in slices (MIG), its slices."""
    return [uuid for each in _parse_list(text) for uuid in (each[1:] or each)]


def parse_all_devices(text: str) -> List[str]:
    """The same with GPUs in slices as well, each before its slices."""
    return [uuid for each in _parse_list(text) for uuid in each]


def _parse_list(text: str) -> List[List[str]]:
    found: List[List[str]] = []
    for line in text.splitlines():
        whole, part = re.match(_GPU, line), re.match(_SLICE, line)
        if whole:
            found.append([whole.group(1)])
        elif part and found:
            found[-1].append(part.group(1))
    return found


def select(visible: str, uuids: List[str]) -> List[str]:
    """The UUIDs that a CUDA_VISIBLE_DEVICES names, by number or beginning."""
    found: List[str] = []
    for word in (each.strip() for each in visible.split(",")):
        if word.isdecimal() and len(word) < 10:
            found += uuids[int(word) : int(word) + 1]
        elif word:
            found += [uuid for uuid in uuids if uuid.startswith(word)][:1]
    return list(dict.fromkeys(found))


class GpuMetrics:
    """The newest values of the task's GPUs."""

    def __init__(self, reactor: Reactor, environment: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._environment = dict(environment)
        self._command: Optional[List[str]] = None
        self._run: Optional[CommandRun] = None
        self._values: Dict[str, float] = {}
        self._asked_at = -math.inf

    @property
    def pids(self) -> Set[int]:
        """The process of nvidia-smi, if it runs."""
        pid = self._run.pid if self._run is not None else None
        return {pid} if pid is not None else set()

    def restrict_to(self, visible: str) -> None:
        """Ask only for these GPUs, of those that the node shows."""
        self._environment["CUDA_VISIBLE_DEVICES"] = visible
        if self._command is not None:
            self._command = command(self._environment, self._command[0])

    def enable(self, enabled: bool, program: str = "") -> None:
        """Ask from now on, or no more; ``program`` is where nvidia-smi is, if the job says so."""
        self._command = command(self._environment, program) if enabled else None
        if self._command is None:
            self._values = {}

    def sample(self, now: float, every_s: float) -> Dict[str, float]:
        """The newest values; asks again, without waiting, when the last time was so long ago."""
        is_free = self._run is None or (self._run.is_done and self._run.pid is None)
        if self._command is not None and is_free and now >= self._asked_at + every_s:
            self._asked_at = now
            argv, env = self._command, self._environment
            self._run = CommandRun(self._reactor, argv, env, _TIMEOUT_S, self._answered)
        return dict(self._values)

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was nvidia-smi."""
        return self._run is not None and self._run.reaped(pid, exit_code)

    def close(self) -> None:
        """Ask no more, and kill what runs."""
        self._command = None
        if self._run is not None:
            self._run.cancel()

    def _answered(self, result: CommandResult) -> None:
        if result.was_started:
            self._values = parse(result.output)
        else:
            self._command = None
