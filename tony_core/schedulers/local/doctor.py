"""``tony doctor`` on this machine: what the embedded scheduler needs, thing by thing.

Without ``stage`` only questions are asked. With it, files are written below TONY_HOME, and a
small job of one task goes the whole way: staged, a master, a container, our executor, an end.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from typing import Callable, Iterator, Mapping, Optional, Tuple

from tony_core.files.artifact import Artifact
from tony_core.job.spec import Job, Resources, Role
from tony_core.schedulers.local import capacity, home, host_checks, processes
from tony_core.schedulers.local.applications import find_interpreter
from tony_core.schedulers.local.images import Engine
from tony_core.schedulers.local.ledger import Ledger
from tony_core.schedulers.port import AppState, CheckResult, Finding, Scheduler, SchedulerError

PYTHON_S = 20.0
TENSORBOARD_S = 2.0
PROBE_S = 60.0
_VERSION = "import sys; print(*sys.version_info[:3], sep='.')"
_TENSORFLOW = (
    "import importlib.util as u; print('with' if u.find_spec('tensorflow') else 'without');"
    " import tensorboard; print(tensorboard.__version__)"
)
_ON_GPUS = ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")

Stage = Callable[[Job, str], Tuple[Artifact, ...]]


def examine(
    scheduler: Scheduler, root: str, job: Job, env: Mapping[str, str], stage: Optional[Stage]
) -> Iterator[Finding]:
    """Examine this machine; ``root`` is the scheduler's folder, which is usable."""
    advice = "remove old jobs (tony gc), or set TONY_HOME to a larger disk of this machine"
    state = _checked(
        "TONY_HOME", advice, lambda: host_checks.check_folder("TONY_HOME", root, advice)
    )
    yield state
    yield _checked("TMPDIR", "set TMPDIR to another folder", lambda: host_checks.check_tmpdir(env))
    python = _python(job)
    yield python
    yield from host_checks.check_environment(env)
    yield host_checks.check_limits()
    yield host_checks.check_ports(job)
    yield host_checks.check_host_names(processes.host())
    yield _checked("to hand out", "make the ledger readable", lambda: _memory(job, root))
    yield _gpus(job)
    yield _tensorboard(env)
    yield _engine(env)
    if stage is None:
        yield Finding("staging", CheckResult.SKIPPED, "nothing is written without the probe")
        yield Finding("a container", CheckResult.SKIPPED, "nothing is started without the probe")
        return
    advice = "set TONY_HOME to a folder that you can write"
    staging = _checked("staging", advice, lambda: host_checks.try_files(home.make_folder(root)))
    yield staging
    if CheckResult.WRONG in (state.verdict, python.verdict, staging.verdict):
        yield Finding("a container", CheckResult.SKIPPED, "what it needs is wrong")
    else:
        yield probe(scheduler, root, job, stage)


def _checked(what: str, advice: str, check: Callable[[], Finding]) -> Finding:
    """Run one check; its error is a finding, and the other checks go on."""
    try:
        return check()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Finding(what, CheckResult.WRONG, f"{where}{error.strerror or error}", advice)


def _python(job: Job) -> Finding:
    what, advice = "tony.runtime.python", "name one that runs here with tony.runtime.python"
    path = find_interpreter(job)
    if path is None:
        detail = f"there is no {job.runtime.python} on the PATH"
        return Finding(what, CheckResult.WRONG, detail, advice)
    code, version = _run([path, "-I", "-S", "-c", _VERSION], PYTHON_S)
    numbers = [int(part) for part in version.split(".") if part.isdigit()]
    if code is None:
        return Finding(what, CheckResult.WRONG, f"{path} does not run: {version}", advice)
    if code or numbers < [3, 9]:
        detail = f"{path} is {version or 'no Python'}; 3.9 or newer is needed"
        return Finding(what, CheckResult.WRONG, detail, advice)
    return Finding(what, CheckResult.OK, f"{path} {version}")


def _memory(job: Job, root: str) -> Finding:
    there = capacity.machine_memory_mb()
    memory = job.local.memory_mb or there
    vcores = "" if job.local.vcores is None else f", {job.local.vcores} vcores"
    held = sum(one.memory_mb for one in Ledger(home.Home(root).ledger).reservations())
    detail = f"{memory} MB of memory{vcores}" + (f"; {held} MB held by jobs now" if held else "")
    if memory > there:
        detail = f"tony.local.memory is {memory} MB, and this machine has {there} MB"
        return Finding("to hand out", CheckResult.WRONG, detail, f"set it to {there} MB or less")
    return Finding("to hand out", CheckResult.OK, detail)


def _gpus(job: Job) -> Finding:
    try:
        found = capacity.gpu_ids(job.local.gpus, job.local.nvidia_smi)
    except SchedulerError as error:
        return Finding("GPUs", CheckResult.WRONG, str(error), "look at the driver")
    devices = capacity.gpu_count()
    if devices and not found:
        detail = f"{devices} devices, and no nvidia-smi that shows them"
        return Finding(
            "GPUs", CheckResult.NOTE, detail, "install nvidia-smi, or set tony.local.gpus"
        )
    if job.local.gpus is not None and len(found) < job.local.gpus:
        detail = f"tony.local.gpus is {job.local.gpus}, and nvidia-smi shows {len(found)}"
        return Finding("GPUs", CheckResult.WRONG, detail, "set tony.local.gpus to what is there")
    program = capacity.nvidia_smi(job.local.nvidia_smi)
    if program and found:
        code, detail = _run([program, *_ON_GPUS], capacity.NVIDIA_SMI_S)
        busy = [line for line in detail.splitlines() if line.partition(",")[0].strip() in found]
        if code == 0 and busy:
            pids = ", ".join(sorted({line.partition(",")[2].strip() for line in busy}))
            detail = f"{len(found)}, and processes run on them already: {pids}"
            return Finding("GPUs", CheckResult.NOTE, detail, "end them if they were left behind")
    return Finding("GPUs", CheckResult.OK, f"{len(found)}")


def _tensorboard(env: Mapping[str, str]) -> Finding:
    what, program = "TensorBoard", shutil.which("tensorboard", path=env.get("PATH"))
    if program is None:
        advice = "a job that has it in its own environment shows it all the same"
        return Finding(what, CheckResult.NOTE, "there is none on the PATH", advice)
    try:
        with open(program, "rb") as stream:
            first = stream.readline(400).decode("utf-8", "replace")
    except OSError as error:
        advice = "make it readable or reinstall it"
        return Finding(what, CheckResult.NOTE, f"{program}: {error.strerror}", advice)
    python = first[2:].split() if first.startswith("#!") else []
    if python and not os.path.exists(python[0]):
        advice = "reinstall tensorboard in its environment"
        return Finding(what, CheckResult.WRONG, f"{program} has no interpreter", advice)
    if not any("python" in os.path.basename(word) for word in python):
        detail = f"{program} is no script of Python's and cannot be looked into"
        return Finding(what, CheckResult.NOTE, detail, f"see whether {program} --version answers")
    began = time.monotonic()
    code, detail = _run([*python, "-c", _TENSORFLOW], TENSORBOARD_S, env)
    took = time.monotonic() - began
    if code is None:
        advice = "it will be some time after a job's beginning until it shows anything"
        return Finding(what, CheckResult.NOTE, f"{program}: slow to import ({detail})", advice)
    words = detail.split()
    if code != 0 or len(words) != 2:
        last = (detail.splitlines() or ["no output"])[-1]
        advice = "reinstall tensorboard in its environment"
        return Finding(what, CheckResult.WRONG, f"{program} cannot be imported: {last}", advice)
    found = f"{program} {words[1]}, imported in {took:.1f} s"
    if words[0] == "with":
        advice = "an environment without TensorFlow starts it in a fraction of the time"
        return Finding(what, CheckResult.NOTE, f"{found}, with TensorFlow, which it loads", advice)
    return Finding(what, CheckResult.OK, found)


def _engine(env: Mapping[str, str]) -> Finding:
    try:
        found = Engine.find(env)
    except SchedulerError as error:
        advice = "only jobs with tony.docker.enabled need one"
        return Finding("images", CheckResult.NOTE, str(error), advice)
    return Finding("images", CheckResult.OK, f"by {found.program}")


def _run(
    argv: list[str], limit_s: float, env: Optional[Mapping[str, str]] = None
) -> Tuple[Optional[int], str]:
    """Run a command; returns its exit code and output, or None and the reason it did not end."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            env=env,
        )
    except subprocess.TimeoutExpired:
        return None, f"no end within {limit_s:g} s"
    except OSError as error:
        return None, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


# -------------------------------------------------------------------------- the probe


def probe(scheduler: Scheduler, root: str, job: Job, stage: Stage) -> Finding:
    """Run a job with one task that does nothing."""
    what, advice = "a container", "fix the findings above; otherwise read the files named here"
    role = Role("worker", 1, Resources(memory_mb=256), command="true")
    master = job.master._replace(max_attempts=1, preprocess=None, docker=None)
    tried = job.replace(
        name="tony-doctor",
        roles=(role,),
        framework="standalone",
        master=master,
        groups=(),
        group_dependencies=(),
        tags=(),
        files=(),
        network=job.network._replace(tls=False),
    )
    app_id = scheduler.new_app_id(tried)
    folder = home.Home(root).app(app_id)
    began = time.monotonic()
    try:
        artifacts = stage(tried, app_id)
        secret = secrets.token_bytes(32)
        home.write_bytes(folder.secret, secret)  # staging wrote none
        scheduler.submit(app_id, scheduler.dry_run(app_id, tried, artifacts), secret)
        status = scheduler.status(app_id)
        while not status.state.ended and time.monotonic() < began + PROBE_S:
            time.sleep(0.05)
            status = scheduler.status(app_id)
        took = time.monotonic() - began
        if not status.state.ended:
            detail = f"the probe has not ended within {PROBE_S:g} s ({status.state.value})"
            return Finding(
                what, CheckResult.WRONG, detail, "jobs of yours may hold this machine's memory"
            )
        if status.state is not AppState.SUCCEEDED:
            detail = status.diagnostics or home.tail(folder.master_log(1, "stderr"))
            return Finding(what, CheckResult.WRONG, detail.replace("\n", " / "), advice)
        return Finding(what, CheckResult.OK, f"started, ran and ended within {took:.1f} s")
    except (OSError, SchedulerError) as error:
        return Finding(what, CheckResult.WRONG, str(error), advice)
    finally:
        try:
            scheduler.kill(app_id, "the probe is over")
        except SchedulerError:
            pass  # it was never submitted
        shutil.rmtree(folder.path, ignore_errors=True)
        shutil.rmtree(os.path.join(home.Home(root).history, app_id), ignore_errors=True)
