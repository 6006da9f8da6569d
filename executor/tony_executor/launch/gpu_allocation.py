"""Whether the GPUs that the task asked for are there, and which are its own.

Theory of operation
===================

The scheduler's promise that a container has GPUs is only a number. Before the program starts,
nvidia-smi lists what this container sees:

- *fewer than asked for*, or a tool that fails or does not answer: the node's fault; the task fails
  here, before hours of training go by on a processor, and the job avoids the node.
- *nothing*, since there is no such tool, or it is no program: a site may do without it, and the
  next node will have none either. So the program starts, and one line of the story says that the
  GPUs were not counted.
- *as many*: something isolates (control groups, an image's runtime), or the node has no more.
- *more*: nothing isolates. Then free ones are taken by lock, and CUDA_VISIBLE_DEVICES names them,
  so that no two containers of a node train on the same.

A CUDA_VISIBLE_DEVICES in the container's environment narrows the choice; one that names just as
many as were asked for is the scheduler's, which has counted and chosen already. It stands, if
those are there: CUDA itself silently leaves out what it does not find.

*Locks.* One file per GPU in a folder of the user's, locked by the executor that holds the GPU and
released by the kernel when that one ends, however it ends. Another lock is held while one chooses,
so that two executors that each got half of what they need cannot keep each other waiting. A lock
may still be held by a container that is about to end: it is waited for a little.

The folder is /tmp/tony-gpus-UID. What another user has put there is passed over: the folder then
has a random name behind that, and is found by its owner. Where this user has several (another
user's went away meanwhile) a GPU is locked in all of them, so that executors which began with
different ones still exclude each other; a folder is never removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor.launch.spawn import CommandResult, CommandRun
from tony_executor.monitoring import nvidia_smi

ANSWER_S = 30.0  # nvidia-smi wakes sleeping drivers up, one after the other
BUSY_S = 20.0
_LOOK_S = 0.25
SWITCH = "tony.task.gpu-check=false does without"
UNCOUNTED = "gpus-not-counted"  # a subject on which one line in a job's story is enough


class GpuAllocation:
    """Counts and locks the task's GPUs; ``done`` gets an empty text, or why that failed."""

    def __init__(
        self,
        reactor: Reactor,
        environment: Mapping[str, str],
        host: str,
        warn: Callable[[str, str], None],
    ) -> None:
        self._reactor = reactor
        self._warn = warn  # gets a text, and a subject on which one line is enough
        self._environment = dict(environment)
        self._host = host
        self._locks = GpuLocks(folder_of(environment))
        self._run: Optional[CommandRun] = None
        self._timer: Optional[Timer] = None
        self._given = ""
        self.gpus = _names(environment)  # what the program may use, as far as that is known
        self.visible: Optional[str] = None  # for CUDA_VISIBLE_DEVICES, when we have chosen

    def use_program(self, program: str) -> None:
        """Set where nvidia-smi is, if the job says so."""
        self._given = program

    def allocate(self, requested: int, done: Callable[[str], None]) -> None:
        """Check and lock that many GPUs; a check that runs is cancelled."""
        self.cancel()
        self.visible = None
        limit = self._environment.get("CUDA_VISIBLE_DEVICES")
        chosen = self.gpus = _names(self._environment)
        if limit is not None and limit.strip() in nvidia_smi.NONE:
            self._soon(done, self._describe_lack(0, requested, f" (CUDA_VISIBLE_DEVICES={limit})"))
            return
        settled = len(chosen) == requested
        program = nvidia_smi.find_program(self._environment, self._given)
        if program is None:
            if not settled:
                self._warn_uncounted(requested, "there is no nvidia-smi on its PATH")
            self._soon(done, "")
            return

        def answered(result: CommandResult) -> None:
            self._run = None
            if not result.was_started:
                if not settled:
                    self._warn_uncounted(requested, result.error)
                done("")
                return
            if result.error:
                done(self._describe_lack(None, requested, f", and {result.error} ({SWITCH})"))
                return
            found = (
                nvidia_smi.parse_all_devices(result.output)
                if settled
                else nvidia_smi.parse_devices(result.output)
            )
            within = ""
            if limit is not None:
                found = nvidia_smi.select(limit, found)
                within = f" (CUDA_VISIBLE_DEVICES={limit})"
            if len(found) < requested:
                done(self._describe_lack(len(found), requested, f"{within} ({SWITCH})"))
            elif settled:
                done("")
            else:
                self._take(requested, found, self._reactor.now() + BUSY_S, done)

        self._run = CommandRun(
            self._reactor, [program, "-L"], self._environment, ANSWER_S, answered
        )

    def reaped(self, pid: int, exit_code: int) -> bool:
        """Note the end of a child; returns whether it was ours."""
        return self._run is not None and self._run.reaped(pid, exit_code)

    def cancel(self) -> None:
        """Stop checking; locks stay held."""
        if self._run is not None:
            self._run.cancel()
            self._run = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop, and release the locks."""
        self.cancel()
        self._locks.release()

    def _take(
        self, requested: int, found: List[str], until: float, done: Callable[[str], None]
    ) -> None:
        self._timer = None
        isolated = len(found) == requested
        try:
            taken = self._locks.take(requested, found)
        except GpuLockError as error:
            # Where GPUs are isolated, no other container can have them anyway.
            done("" if isolated else f"the node's free GPUs cannot be chosen: {error}")
            return
        if taken is not None:
            self.visible = None if isolated else ",".join(taken)
            self.gpus = list(taken)
            done("")
        elif self._reactor.now() < until:
            self._timer = self._reactor.call_later(
                _LOOK_S, self._take, requested, found, until, done
            )
        else:
            done(
                f"node {self._host} has {len(found)} GPUs, and other containers of TonY held too"
                f" many of them to leave {requested} for this one, for {BUSY_S:g} s"
                f" (locks in {self._locks.folder})"
            )

    def _soon(self, done: Callable[[str], None], problem: str) -> None:
        self._timer = self._reactor.call_later(0, done, problem)

    def _warn_uncounted(self, requested: int, why: str) -> None:
        self._warn(
            f"{_count_words(requested)} asked for on node {self._host}, and not counted before the"
            f" program starts: {why}. Set tony.gpu-exec-path to the path of nvidia-smi, or"
            f" tony.task.gpu-check=false where there is none",
            UNCOUNTED,
        )

    def _describe_lack(self, found: Optional[int], requested: int, why: str) -> str:
        if found is None:
            return f"{_count_words(requested)} asked for on node {self._host}{why}"
        return f"{_count_words(requested)} asked for, and node {self._host} shows {found}{why}"


def _names(environment: Mapping[str, str]) -> List[str]:
    """The devices that CUDA_VISIBLE_DEVICES names."""
    limit = environment.get("CUDA_VISIBLE_DEVICES", "")
    words = [] if limit.strip() in nvidia_smi.NONE else limit.split(",")
    return [word.strip() for word in words if word.strip()]


def _count_words(requested: int) -> str:
    return "a GPU" if requested == 1 else f"{requested} GPUs"


class GpuLockError(Exception):
    """The folder of locks cannot be used; the text says why and what to do."""


def folder_of(environment: Mapping[str, str]) -> str:
    """The folder that an administrator names for all containers of the node; empty if none."""
    return environment.get("TONY_GPU_LOCKS", "")


class GpuLocks:
    """The locks that this executor holds."""

    def __init__(self, folder: str = "", parent: str = "/tmp") -> None:  # noqa: S108
        self._named = folder
        self._parent = parent
        self._folders: List[str] = []
        self._held: Dict[str, List[int]] = {}

    @property
    def folder(self) -> str:
        """Where the locks are, for a message."""
        return ", ".join(self._folders)

    @property
    def held(self) -> List[str]:
        """UUIDs, in the order they were taken."""
        return list(self._held)

    def take(self, count: int, among: Sequence[str]) -> Optional[List[str]]:
        """Lock so many of these, those we hold first; None when others hold too many."""
        self._folders = [self._make(self._named)] if self._named else self._find()
        choosing = self._lock("choosing")
        if choosing is None:
            return None
        try:
            for uuid in self.held:
                if uuid not in among:
                    _close(self._held.pop(uuid))
            fresh: Dict[str, List[int]] = {}
            for uuid in among:
                if len(self._held) + len(fresh) >= count:
                    break
                if uuid in self._held:
                    continue
                files = self._lock(uuid.replace("/", "-"))
                if files is not None:
                    fresh[uuid] = files
            if len(self._held) + len(fresh) < count:
                for files in fresh.values():
                    _close(files)
                return None
            self._held.update(fresh)
            return self.held[:count]
        finally:
            _close(choosing)

    def release(self) -> None:
        """Release all."""
        for files in self._held.values():
            _close(files)
        self._held.clear()

    def _find(self) -> List[str]:
        """All folders of this user; the first executor of the node makes one."""
        name = f"tony-gpus-{os.geteuid()}"
        for tail in ("", "-" + os.urandom(8).hex()):
            found = self._ours(name)
            if found:
                return found
            try:
                os.mkdir(os.path.join(self._parent, name + tail), 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                reason = error.strerror
                raise GpuLockError(
                    f"{self._parent}/{name}{tail} cannot be made: {reason}"
                ) from None
        # Listed again: another executor may have made another one at the same time.
        return self._ours(name)

    def _ours(self, name: str) -> List[str]:
        try:
            entries = sorted(each for each in os.listdir(self._parent) if _is_name(each, name))
        except OSError as error:
            raise GpuLockError(f"{self._parent} cannot be read: {error.strerror}") from None
        paths = [os.path.join(self._parent, each) for each in entries]
        return [path for path in paths if _is_ours(path)]

    def _make(self, folder: str) -> str:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise GpuLockError(f"{folder} cannot be made: {error.strerror}") from None
        if not _is_ours(folder):
            raise GpuLockError(f"{folder} is not a folder of this user: remove it")
        return folder

    def _lock(self, name: str) -> Optional[List[int]]:
        """Locked in every folder, or in none."""
        files: List[int] = []
        try:
            for folder in self._folders:
                path = os.path.join(folder, name)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    files.append(os.open(path, flags, 0o600))
                except OSError as error:
                    raise GpuLockError(f"{path} cannot be opened: {error.strerror}") from None
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _close(files)
            return None
        except GpuLockError:
            _close(files)
            raise
        return files


def _is_name(entry: str, name: str) -> bool:
    return entry == name or entry.startswith(name + "-")


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _close(files: List[int]) -> None:
    for file in files:
        os.close(file)
