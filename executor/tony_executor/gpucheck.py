"""Whether the GPUs that the task asked for are there, and which are its own.

Theory of operation
===================

The scheduler's word that a container has GPUs is only a number. Before the program starts,
nvidia-smi is asked what this container sees:

- *fewer than asked for*, or a tool that fails or does not answer: the node's fault; the task
  fails here, before hours of training go by on a processor, and the job avoids the node.
- *nothing*, since there is no such tool, or it is no program: a site may do without it, and
  the next node will have none either. So the program starts, and the story says once that
  nobody has counted.
- *as many*: somebody isolates (control groups, an image's runtime), or the node has no more.
- *more*: nobody isolates. Then free ones are taken by lock, and CUDA_VISIBLE_DEVICES says
  which, so that no two containers of a node train on the same.

A CUDA_VISIBLE_DEVICES in the container's environment narrows the choice; one that names just
as many as were asked for is the scheduler's, which has counted and chosen already. It stands, if
those are there: CUDA itself leaves out what it does not find, and says nothing.

A lock may still be held by a container that is about to end: it is waited for a little.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, Optional

from tony_core.protocol.reactor import Reactor, Timer
from tony_executor import gpus
from tony_executor.asking import Answer, Question
from tony_executor.gpulocks import CannotLock, GpuLocks, folder_of

PATIENCE_S = 30.0  # nvidia-smi wakes sleeping drivers up, one after the other
BUSY_S = 20.0
_LOOK_S = 0.25
SWITCH = "tony.task.gpu-check=false does without"
UNCOUNTED = "gpus-not-counted"  # of this one line in a job's story is enough


class GpuCheck:
    """One executor's; ``done`` gets a complaint, empty when all is well (or not to be known)."""

    def __init__(
        self,
        reactor: Reactor,
        environment: Mapping[str, str],
        host: str,
        warn: Callable[[str, str], None],
    ) -> None:
        self._reactor = reactor
        self._warn = warn  # gets a text, and the matter of which it is enough
        self._environment = dict(environment)
        self._host = host
        self._locks = GpuLocks(folder_of(environment))
        self._question: Optional[Question] = None
        self._timer: Optional[Timer] = None
        self._given = ""
        self.gpus = _names(environment)  # what the program may use, as far as that is known
        self.visible: Optional[str] = None  # for CUDA_VISIBLE_DEVICES, when we have chosen

    def use(self, program: str) -> None:
        """Where nvidia-smi is, if the job says so."""
        self._given = program

    def begin(self, asked: int, done: Callable[[str], None]) -> None:
        """Find out; a check under way is forgotten."""
        self.cancel()
        self.visible = None
        limit = self._environment.get("CUDA_VISIBLE_DEVICES")
        chosen = self.gpus = _names(self._environment)
        if limit is not None and limit.strip() in gpus.NONE:
            self._soon(done, self._lacking(0, asked, f" (CUDA_VISIBLE_DEVICES={limit})"))
            return
        settled = len(chosen) == asked
        program = gpus.find(self._environment, self._given)
        if program is None:
            if not settled:
                self._uncounted(asked, "there is no nvidia-smi on its PATH")
            self._soon(done, "")
            return

        def answered(answer: Answer) -> None:
            self._question = None
            if not answer.ran:
                if not settled:
                    self._uncounted(asked, answer.error)
                done("")
                return
            if answer.error:
                done(self._lacking(None, asked, f", and {answer.error} ({SWITCH})"))
                return
            found = gpus.shown(answer.text) if settled else gpus.listed(answer.text)
            within = ""
            if limit is not None:
                found = gpus.named(limit, found)
                within = f" (CUDA_VISIBLE_DEVICES={limit})"
            if len(found) < asked:
                done(self._lacking(len(found), asked, f"{within} ({SWITCH})"))
            elif settled:
                done("")
            else:
                self._take(asked, found, self._reactor.now() + BUSY_S, done)

        self._question = Question(
            self._reactor, [program, "-L"], self._environment, PATIENCE_S, answered
        )

    def reaped(self, pid: int, exit_code: int) -> bool:
        """A child ended; whether it was ours."""
        return self._question is not None and self._question.reaped(pid, exit_code)

    def cancel(self) -> None:
        """Nobody wants to know any more; what is held stays held."""
        if self._question is not None:
            self._question.cancel()
            self._question = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """At the executor's end."""
        self.cancel()
        self._locks.release()

    def _take(
        self, asked: int, found: List[str], until: float, done: Callable[[str], None]
    ) -> None:
        self._timer = None
        isolated = len(found) == asked
        try:
            taken = self._locks.take(asked, found)
        except CannotLock as error:
            # Where somebody isolates, nobody else can have them anyway.
            done("" if isolated else f"the node's free GPUs cannot be chosen: {error}")
            return
        if taken is not None:
            self.visible = None if isolated else ",".join(taken)
            self.gpus = list(taken)
            done("")
        elif self._reactor.now() < until:
            self._timer = self._reactor.call_later(_LOOK_S, self._take, asked, found, until, done)
        else:
            done(
                f"node {self._host} has {len(found)} GPUs, and other containers of TonY held too"
                f" many of them to leave {asked} for this one, for {BUSY_S:g} s"
                f" (locks in {self._locks.folder})"
            )

    def _soon(self, done: Callable[[str], None], complaint: str) -> None:
        self._timer = self._reactor.call_later(0, done, complaint)

    def _uncounted(self, asked: int, why: str) -> None:
        self._warn(
            f"{_wanted(asked)} asked for on node {self._host}, and not counted before the program"
            f" starts: {why}. Say by tony.gpu-exec-path where nvidia-smi is on the nodes, or by"
            f" tony.task.gpu-check=false that there is none",
            UNCOUNTED,
        )

    def _lacking(self, found: Optional[int], asked: int, why: str) -> str:
        if found is None:
            return f"{_wanted(asked)} asked for on node {self._host}{why}"
        return f"{_wanted(asked)} asked for, and node {self._host} shows {found}{why}"


def _names(environment: Mapping[str, str]) -> List[str]:
    """What CUDA_VISIBLE_DEVICES names."""
    limit = environment.get("CUDA_VISIBLE_DEVICES", "")
    words = [] if limit.strip() in gpus.NONE else limit.split(",")
    return [word.strip() for word in words if word.strip()]


def _wanted(asked: int) -> str:
    return "a GPU" if asked == 1 else f"{asked} GPUs"
