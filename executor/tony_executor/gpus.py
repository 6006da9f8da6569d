"""What the GPUs say, by nvidia-smi. Pure but for finding it."""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, Optional

EVERY_S = 10.0
"""nvidia-smi costs a tenth of a second of a core: not more often than this."""

_FIELDS = ("utilization.gpu", "memory.used", "memory.total")
_MOST = 1e15
_DEVICE = "/dev/nvidiactl"
_GPU = r"GPU \d+: .*\(UUID: ([\w-]+)\)\s*$"
_SLICE = r"\s+MIG .*\(UUID: ([\w/-]+)\)\s*$"
_PLACES = ("/usr/bin", "/usr/local/nvidia/bin")
NONE = ("", "-1", "NoDevFiles", "none", "void")  # what CUDA_VISIBLE_DEVICES says for no GPU


def command(environment: Mapping[str, str], given: str = "") -> Optional[List[str]]:
    """How to ask for our GPUs; None where there are none."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in NONE:
        return None
    if not given and not os.path.exists(_DEVICE):
        return None
    program = find(environment, given)
    if not program or not os.access(program, os.X_OK):
        return None
    asked = [
        program,
        "--query-gpu=" + ",".join(_FIELDS),
        "--format=csv,noheader,nounits",
    ]
    return [*asked, "-i", visible] if visible else asked


def parse(text: str) -> Dict[str, float]:
    """The means and sums over our GPUs; what says [N/A] is left out."""
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
        values["gpu_percent"] = round(sum(busy) / len(busy), 1)
    if used:
        values["gpu_memory_mb"] = sum(used)
    if whole:
        values["gpu_memory_total_mb"] = sum(whole)
    if rows:
        values["gpus"] = float(len(rows))
    return values


def find(environment: Mapping[str, str], given: str = "") -> Optional[str]:
    """nvidia-smi; None where there is none."""
    if given:
        return given
    for folder in [*environment.get("PATH", "").split(os.pathsep), *_PLACES]:
        candidate = os.path.join(folder, "nvidia-smi")
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None


def listed(text: str) -> List[str]:
    """The UUIDs in what ``nvidia-smi -L`` says; of a GPU in slices (MIG), its slices."""
    return [uuid for each in _shown(text) for uuid in (each[1:] or each)]


def shown(text: str) -> List[str]:
    """All of them: GPUs in slices as well, each before its own."""
    return [uuid for each in _shown(text) for uuid in each]


def _shown(text: str) -> List[List[str]]:
    found: List[List[str]] = []
    for line in text.splitlines():
        whole, part = re.match(_GPU, line), re.match(_SLICE, line)
        if whole:
            found.append([whole.group(1)])
        elif part and found:
            found[-1].append(part.group(1))
    return found


def named(visible: str, uuids: List[str]) -> List[str]:
    """Those of the UUIDs that a CUDA_VISIBLE_DEVICES names, by number or beginning."""
    found: List[str] = []
    for word in (each.strip() for each in visible.split(",")):
        if word.isdecimal() and len(word) < 10:
            found += uuids[int(word) : int(word) + 1]
        elif word:
            found += [uuid for uuid in uuids if uuid.startswith(word)][:1]
    return list(dict.fromkeys(found))
