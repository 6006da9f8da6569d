"""One log of a task: its end first, any part of it, its lines with a word; and its bytes."""

from __future__ import annotations

from typing import List, Mapping, Tuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tony_core.portal.access.gate import HEADERS
from tony_core.portal.job_source import JobSource, LogChunk, LogProblem
from tony_core.portal.log_search import EMPTY, cut_to_lines, read_part, search_log
from tony_core.portal.site import Problem, Site, json_answer

TAIL = 128 * 1024  # bytes that a person gets first
PART = 256 * 1024
CONTEXT = 16 * 1024  # before a line that was looked for
PIECE = 1 << 20  # of the bytes


def routes(site: Site) -> List[Route]:
    """``log/TASK/NAME`` is the page, ``logs/TASK/NAME`` the bytes."""

    def first(request: Request) -> Response:
        row = site.find(request)
        task = request.path_params["task"]
        return RedirectResponse(site.job_url(request, row, f"log/{task}/stdout"), 307)

    return [
        Route("/jobs/{app_id}/log/{task}", first),
        Route("/jobs/{app_id}/log/{task}/{name}", lambda request: show_log(site, request)),
        Route("/jobs/{app_id}/logs/{task}/{name}", lambda request: send_bytes(site, request)),
    ]


def show_log(site: Site, request: Request) -> Response:
    """The viewer."""
    row, source = site.open(request)
    task, name = str(request.path_params["task"]), str(request.path_params["name"])
    container = request.query_params.get("container", "")
    words = request.query_params.get("q", "").strip()[:200]
    at = _offset(request, "at")
    offset = _offset(request, "offset")
    session = _offset(request, "session")
    problem, streams = "", _streams(source, task)
    sessions = _sessions(source, task, name, container)
    if session is not None and at is None and offset is None and not words:
        offset = sessions.get(session)
        if offset is None and sessions:
            problem = f"session {session} has not written to this log"

    def read(begin: int, limit: int) -> LogChunk:
        return source.log(task, name, container, begin, limit)

    part, found = EMPTY, None
    is_tail = at is None and offset is None
    try:
        if problem:
            pass
        elif words and is_tail:
            found = search_log(read, words, _offset(request, "from") or 0)
        elif at is not None:
            part = read_part(read, at - CONTEXT, PART, at, sessions)
        elif offset is not None:
            part = read_part(read, offset, PART, sessions=sessions)
        else:
            part = cut_to_lines(read(-TAIL, TAIL), True, sessions=sessions)
    except LogProblem as error:
        problem = str(error)
    return site.render(
        request,
        "log.html",
        row=row,
        source=source,
        task=task,
        name=name,
        container=container,
        streams=streams,
        sessions=sessions,
        words=words,
        problem=problem,
        part=part,
        is_tail=is_tail,
        found=found,
        step=PART,
        raw=site.job_url(request, row, f"logs/{task}/{name}", container=container),
    )


def send_bytes(site: Site, request: Request) -> Response:
    """A piece of the log as it is; ``X-Next-Offset`` says where the next begins."""
    _, source = site.open(request)
    offset = _offset(request, "offset", is_signed=True)
    try:
        chunk = source.log(
            str(request.path_params["task"]),
            str(request.path_params["name"]),
            request.query_params.get("container", ""),
            -TAIL if offset is None else offset,
            PIECE,
        )
    except LogProblem as error:
        return json_answer({"error": str(error)}, 404)
    begin = chunk.offset if chunk.size < 0 else min(chunk.offset, chunk.size)
    headers = {
        **HEADERS,
        "X-Next-Offset": str(begin + len(chunk.data)),
        "X-Log-Size": str(chunk.size),
        "X-Tony-Over": str(int(chunk.over)),
    }
    return Response(chunk.data, headers=headers, media_type="text/plain; charset=utf-8")


def _streams(source: JobSource, task: str) -> Tuple[Tuple[str, str], ...]:
    try:
        found = source.streams(task)
    except (LogProblem, OSError, LookupError):
        return ()  # the log's own problem is shown
    containers = list(dict.fromkeys(container for container, _ in found))
    order = {"stdout": 0, "stderr": 1}
    return tuple(sorted(found, key=lambda each: (containers.index(each[0]), order.get(each[1], 2))))


def _sessions(source: JobSource, task: str, name: str, container: str) -> Mapping[int, int]:
    try:
        found = source.sessions(task, name, container)
    except (LogProblem, OSError, LookupError):
        return {}  # the log's own problem is shown
    return found if len(found) > 1 else {}


def _offset(request: Request, name: str, is_signed: bool = False) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    digits = text[1:] if is_signed and text.startswith("-") else text
    if digits.isascii() and digits.isdecimal() and len(digits) < 16:
        return int(text)
    raise Problem(400, "This address asks for something odd", f"{name}={text!r} is no whole number")
