"""TonY's functions for programs: report(), result(), task(), checkpoints, data sets, frameworks.

Without dependencies (what concerns HDFS and single frameworks stands beside it); the same in a job
and outside of one, where report() does nothing and task() describes a single task. Nothing
here ends a training because of TonY: a full disk or a lost file loses a report, not the program.

    import tony

    tony.report(progress=0.4, step=400, metrics={"loss": 0.12})
    tony.result({"model": "hdfs:///models/7", "accuracy": 0.93})
    saved = tony.checkpoints("ckpt")
    saved.save(400, data)
    newest = saved.latest()          # (step, path) or None
    folder = tony.dataset("hdfs:///data/points")
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import shutil
import sys
import time
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

from tony_preemption import Preemption, on_preemption, preemption
from tony_reports import reporter

__all__ = [
    "report", "result", "task", "Task", "checkpoints", "Checkpoints", "dataset", "upload",
    "jax_initialize", "xgboost_communicator", "lightgbm_parameters", "ray_init",
    "on_preemption", "preemption", "Preemption",
]  # fmt: skip

# ------------------------------------------------------------------ reports

_MAX_NAME = 200
_MAX_RESULT = 64 * 1024


_not_finite: Set[str] = set()  # the metrics of which stderr has a line
if os.environ.get("TONY_STACK_SIGNAL"):
    importlib.import_module("tony_stacks")


def report(
    progress: Optional[float] = None,
    step: Optional[int] = None,
    metrics: Optional[Mapping[str, Any]] = None,
) -> None:
    """Report how far the program is, for the job's page and history.

    ``progress`` is from 0 to 1; ``metrics`` names to numbers (numpy's and tensors of one
    element too). May be called at any rate, from any thread. Raises, in a job and
    outside, only for what is no number, no name, or no progress from 0 to 1. A metric that is
    not finite, as a loss may become, is left out.
    """
    done = None if progress is None else _number(progress, "progress")
    if done is not None and not 0.0 <= done <= 1.0:
        raise ValueError(f"progress is from 0 to 1, not {done!r}")
    at = None if step is None else _number(step, "step")
    if at is not None and not abs(at) < 2**63:
        raise ValueError(f"a step is a number of 64 bits, not {step!r}")
    values: Dict[str, float] = {}
    for name, value in (metrics or {}).items():
        if not isinstance(name, str) or not name or len(name) > _MAX_NAME:
            raise ValueError(f"a metric's name is text of 1 to {_MAX_NAME} letters, not {name!r}")
        number = _number(value, f"metric {name!r}")
        if math.isfinite(number):
            values[name] = number
        elif name not in _not_finite:
            _not_finite.add(name)
            with contextlib.suppress(Exception):  # no stderr, or a full disk
                sys.stderr.write(f"tony: metric {name!r} is {number}; it is left out\n")
    if os.environ.get("TONY_REPORT_FILE"):
        reporter.add(done, None if at is None else int(at), values)


def result(value: Any) -> None:
    """Give the program's result: where the model is, how good it is; any JSON up to 64 kB.

    The chief's is kept with the job, as its result; that of other tasks is ignored. The
    last one counts. Raises for what JSON cannot hold and what is too large, in a job and outside.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a result is what JSON can hold: {error}") from None
    if len(text) > _MAX_RESULT:
        raise ValueError(
            f"a result of {len(text)} characters as JSON; {_MAX_RESULT} is the most: save what is"
            " large, and give where it is"
        )
    if os.environ.get("TONY_REPORT_FILE"):
        reporter.write_now("result", value)


def _report_saved(step: int) -> None:
    """Report a saved checkpoint: progress, which restores the budget of retries."""
    if os.environ.get("TONY_REPORT_FILE"):
        reporter.write_now("saved", step)


def _number(value: Any, what: str) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{what} is a number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{what} is a number, not {type(value).__name__}: {error}") from None


# ------------------------------------------------------------------ which task this is


class Task(NamedTuple):
    """This task; outside a job, the only one there is."""

    role: str
    index: int  # type: ignore[assignment]
    count: int  # type: ignore[assignment]  # how many tasks are waited for (TASK_NUM)
    is_chief: bool
    session: int  # 0 at first; more after restarts
    checkpoint_dir: Optional[str]
    restarts: int = 0  # of this task, within this session


def task() -> Task:
    """Which task this program is."""
    env = os.environ
    inside = "JOB_NAME" in env and "TASK_INDEX" in env
    return Task(
        role=env.get("JOB_NAME", "worker") if inside else "worker",
        index=_whole(env.get("TASK_INDEX"), 0) if inside else 0,
        count=_whole(env.get("TASK_NUM"), 1) if inside else 1,
        is_chief=env.get("IS_CHIEF", "").lower() == "true" if inside else True,
        session=_whole(env.get("SESSION_ID"), 0) if inside else 0,
        checkpoint_dir=env.get("TONY_CHECKPOINT_DIR") or None,
        restarts=_whole(env.get("TASK_RESTARTS"), 0) if inside else 0,
    )


def _whole(text: Optional[str], default: int) -> int:
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default


# ------------------------------------------------------------------ frameworks


def jax_initialize(**more: Any) -> None:
    """Call ``jax.distributed.initialize`` with what TonY knows; nothing outside a job.

    ``more`` goes to jax as it is (``initialization_timeout=600``).
    """
    env = os.environ
    count = env.get("TONY_JAX_NUM_PROCESSES")
    coordinator = env.get("TONY_JAX_COORDINATOR_ADDRESS") or env.get("JAX_COORDINATOR_ADDRESS")
    if not count or not coordinator:
        return
    # By name: it is the program's, and this file imports nothing but the standard library.
    jax = importlib.import_module("jax")

    arguments = {
        "coordinator_address": coordinator,
        "num_processes": int(count),
        "process_id": int(env["TONY_JAX_PROCESS_ID"]),
    }
    jax.distributed.initialize(**{**arguments, **more})


def xgboost_communicator(**more: Any) -> Any:
    """A context in which XGBoost trains with the whole job; outside a job, by itself.

    Rank 0 runs XGBoost's tracker meanwhile. ``more`` goes to ``CommunicatorContext`` as it is
    (``dmlc_timeout=600``).
    """
    return importlib.import_module("tony_boosting").xgboost_communicator(**more)


def lightgbm_parameters(**more: Any) -> Dict[str, Any]:
    """The parameters by which LightGBM trains with the whole job; outside a job, only ``more``.

    ``more`` are parameters of the training, and count more than what is found
    (``tree_learner="voting"``).
    """
    found: Dict[str, Any] = importlib.import_module("tony_boosting").lightgbm_parameters(**more)
    return found


def ray_init(**more: Any) -> None:
    """Start this task's node of the job's Ray cluster; outside a job, ``ray.init``.

    In the chief it returns when all nodes are there, and ``more`` goes to ``ray.init`` as it is.
    In the other tasks it does not return: they serve until the chief's program has ended.
    """
    importlib.import_module("tony_ray").init(**more)


# ------------------------------------------------------------------ checkpoints

_STEP = re.compile(r"step-([0-9]{1,100})\Z")
_MAKING = re.compile(r"making-\d+-\d+(\.old)?$")
Content = Union[bytes, bytearray, memoryview, Callable[[str], Any]]


class Checkpoints:
    """Checkpoints in a local (or shared) folder, each whole or not there at all.

    One that is being written has a temporary name; it gets its own by a rename, which is atomic.
    So a program that is killed while it saves finds the one before.
    """

    def __init__(self, folder: str, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError("keep at least one checkpoint")
        self.folder = os.path.abspath(folder)
        self.keep = keep

    def save(self, step: int, content: Content) -> str:
        """Write one and remove the oldest; returns its path.

        ``content`` is bytes, or a function that is given a path and makes a file or a folder
        there. A step saved again is replaced.
        """
        if step < 0:
            raise ValueError(f"a step is not negative: {step}")
        os.makedirs(self.folder, exist_ok=True)
        target = self.path(step)
        making = os.path.join(self.folder, f"making-{step}-{os.getpid()}")
        _remove(making)
        try:
            if callable(content):
                content(making)
                if not os.path.lexists(making):
                    raise ValueError(f"nothing was written to {making}")
            else:
                with open(making, "wb") as file:
                    file.write(content)
            for each in _files(making):
                _sync(each)
            _put(making, target)
        except BaseException:
            _remove(making)
            raise
        _sync(self.folder)
        _report_saved(step)
        self._forget(step)
        return target

    def latest(self) -> Optional[Tuple[int, str]]:
        """(step, path) of the newest; None when there is none."""
        steps = self.steps()
        return (steps[-1], self.path(steps[-1])) if steps else None

    def steps(self) -> List[int]:
        """The steps that are there, the oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted(int(found.group(1)) for found in map(_STEP.match, names) if found)

    def path(self, step: int) -> str:
        """Where a step is."""
        return os.path.join(self.folder, f"step-{step:010d}")

    def fetch(self, step: int) -> str:
        """A local path of a step: of one on HDFS a copy, here the thing itself."""
        return self.path(step)

    def wait(self) -> None:
        """Return at once: nothing is saved in the background here."""

    def _forget(self, saved: int) -> None:
        older = [step for step in self.steps() if step != saved]
        for step in older[: max(0, len(older) + 1 - self.keep)]:
            # Aside first: half a folder must never be found as a checkpoint.
            aside = os.path.join(self.folder, f"making-{step}-{os.getpid()}.old")
            try:
                os.rename(self.path(step), aside)
            except FileNotFoundError:
                continue
            _remove(aside)
        for name in os.listdir(self.folder):
            if _MAKING.match(name) and self._is_abandoned(name):
                _remove(os.path.join(self.folder, name))

    def _is_abandoned(self, name: str) -> bool:
        """Whether a killed process left it: by its age, since a pid may be another machine's."""
        try:
            changed = os.lstat(os.path.join(self.folder, name)).st_mtime
        except OSError:
            return False
        return time.time() - changed > 3600


def checkpoints(folder: Optional[str] = None, keep: int = 3, background: bool = False) -> Any:
    """Checkpoints in this folder, else in the job's (tony.application.checkpoint-dir).

    A folder of HDFS (``hdfs://...``) or of an object store (``s3a``, ``gs``, ``abfs``: with the
    package s3fs, gcsfs or adlfs) as well as a local or shared one; there ``latest()`` gives a
    local copy, and with ``background`` a save returns while it is still uploaded.
    """
    where = folder or os.environ.get("TONY_CHECKPOINT_DIR")
    if not where:
        raise ValueError(
            "no folder for checkpoints: give one, or set tony.application.checkpoint-dir"
        )
    if where.startswith(_HDFS):
        return importlib.import_module("tony_hdfs").HdfsCheckpoints(
            where, keep, background, _report_saved
        )
    if where.startswith(_OBJECTS):
        return importlib.import_module("tony_objects").ObjectCheckpoints(
            where, keep, background, _report_saved
        )
    return Checkpoints(_local(where), keep)


def dataset(url: str) -> str:
    """A local path of this file or folder: of what stands elsewhere a copy, once per container."""
    if url.startswith(_HDFS):
        hdfs = importlib.import_module("tony_hdfs")
        return str(hdfs.fetch(*hdfs.connect(url)))
    if url.startswith(_OBJECTS):
        return str(importlib.import_module("tony_objects").fetch(url))
    return _local(url)


def upload(path: str, url: str) -> str:
    """A local file or folder to HDFS, whole or not at all; what stood there is replaced.

    To a local or mounted place it is copied, in the same way.
    """
    if url.startswith(_HDFS):
        return str(importlib.import_module("tony_hdfs").upload(path, url))
    if url.startswith(_OBJECTS):
        return str(importlib.import_module("tony_objects").upload(path, url))
    target = os.path.abspath(_local(url))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    making = f"{target}.making-{os.getpid()}"
    _remove(making)
    if os.path.isdir(path):
        shutil.copytree(path, making, symlinks=True)
    else:
        shutil.copyfile(path, making)
    _put(making, target)
    return target


_HDFS = ("hdfs://", "webhdfs://", "swebhdfs://")
_OBJECTS = ("s3://", "s3a://", "s3n://", "gs://", "gcs://", "abfs://", "abfss://")


def _local(where: str) -> str:
    if where.startswith("file://"):
        where = where[len("file://") :]
    if "://" in where:
        raise ValueError(
            f"{where} is neither a local or mounted folder nor on HDFS or an object store"
        )
    return where


def _put(making: str, target: str) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        # A folder cannot be replaced in one go: the old one moves aside first.
        aside = f"{making}.old"
        _remove(aside)
        os.rename(target, aside)
        os.rename(making, target)
        _remove(aside)
    else:
        if os.path.isdir(making) and os.path.lexists(target):
            os.unlink(target)
        os.replace(making, target)


def _files(path: str) -> Iterator[str]:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                whole = os.path.join(folder, name)
                if not os.path.islink(whole):
                    yield whole
            yield folder
    elif not os.path.islink(path):
        yield path


def _sync(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        pass  # some file systems have none for folders
    finally:
        os.close(file)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
