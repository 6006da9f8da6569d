"""What every page of the portal is made from: settings, index, sources, templates.

Nothing of a page is in its script or style but what ``static`` holds, so the policy that goes with
each page allows no other, and a text of a job that got through the escaping would run nothing.
"""

from __future__ import annotations

import hashlib
from typing import (
    Any,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tony_core.jsontext import write_value
from tony_core.portal.access.gate import HEADERS
from tony_core.portal.endings import Endings
from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import JobPage, JobRow, Query, Usage
from tony_core.portal.job_source import JobSource
from tony_core.portal.page_cache import PageCache
from tony_core.portal.query import check_parameters
from tony_core.portal.rendering import make_templates
from tony_core.portal.settings import Settings
from tony_core.portal.tensorboard import Instance
from tony_core.portal.viewer import Viewer
from tony_core.portal.viewer_places import ViewerPlaces
from tony_core.static import SCRIPT, STYLE, read_asset

T = TypeVar("T")


class Problem(Exception):
    """A page that cannot be shown; the message says why and what to do."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.title = title


class SeveralJobs(Exception):
    """Several jobs have one id: of several locations, or of several owners."""

    def __init__(self, rows: Sequence[JobRow]) -> None:
        super().__init__(f"{len(rows)} jobs")
        self.rows = rows


class JobIndex(Protocol):
    """All jobs; each answer holds what its viewer may see and no more."""

    def page(self, query: Query, viewer: Viewer) -> JobPage:
        """One page of a list. Raises ValueError for a column or a cursor that is none."""

    def rows(self, app_id: str, viewer: Viewer) -> Sequence[JobRow]:
        """The jobs of an id."""

    def runs(
        self,
        viewer: Viewer,
        pipeline: str = "",
        tag: str = "",
        since: float = 0.0,
        owner: str = "",
    ) -> Sequence[JobRow]:
        """The newest jobs of a pipeline or tag (and owner), the oldest of them first."""

    def usage(self, by: str, viewer: Viewer, since: float = 0.0) -> Sequence[Usage]:
        """The sums of figures by ``user``, ``queue``..."""

    def facets(self, viewer: Viewer) -> Mapping[str, Mapping[str, int]]:
        """Which users, queues... there are, with how many jobs."""


SourceOpener = Callable[[JobRow, Viewer], JobSource]
"""Opens a job for its page, to be read as this viewer."""


class TensorBoardOpener(Protocol):
    """TensorBoards of ended jobs, each for one viewer (``tony_core.portal.tensorboard``)."""

    def open(self, row: JobRow, viewer: Viewer) -> Instance:
        """How far the viewer's instance of a job is; starts one where there is none."""

    def look(self, row: JobRow, viewer: Viewer) -> Optional[Instance]:
        """The same, without starting one."""

    def url_of(self, path: str, host: str) -> str:
        """An instance's address for a browser that calls the portal's machine ``host``."""


class Tab(NamedTuple):
    """A part of the site, as its navigation shows it."""

    path: str
    name: str


class Site:
    """The portal's parts, and how a page is rendered from them."""

    def __init__(
        self,
        settings: Settings,
        index: JobIndex,
        open_source: SourceOpener,
        endings: Optional[Endings] = None,
        tabs: Sequence[Tab] = (),
        find_problems: Callable[[], Sequence[str]] = tuple,
        tensorboards: Optional[TensorBoardOpener] = None,
    ) -> None:
        self.settings = settings
        self.index = index
        self.open_source = open_source
        self.endings = endings
        self.tensorboards = tensorboards
        self.tabs = tabs
        self.cache = PageCache()
        self.places = ViewerPlaces()
        self.find_problems = find_problems  # of locations and schedulers
        self.assets: Dict[str, bytes] = {}
        self.asset_names: Dict[str, str] = {}
        for name in (STYLE, SCRIPT):
            data = read_asset(name).encode()
            stem, _, kind = name.rpartition(".")
            self.asset_names[name] = f"{stem}-{hashlib.sha256(data).hexdigest()[:16]}.{kind}"
            self.assets[self.asset_names[name]] = data
        self._templates = make_templates()

    # ------------------------------------------------------------------ who asks, for what

    def viewer(self, request: Request) -> Viewer:
        """Who asks, as the login found him."""
        found = getattr(request.state, "viewer", None)
        if isinstance(found, Viewer):
            return found
        raise Problem(403, "Not logged in", "The portal's login names no user for this request.")

    async def run(self, request: Request, work: Callable[..., T], *args: Any) -> T:
        """What a function gives, called in a thread, in one of the viewer's places."""
        return await self.places.run(self.viewer(request).name, work, *args)

    def find(self, request: Request) -> JobRow:
        """The job that a URL names; raises :class:`Problem` or :class:`SeveralJobs`."""
        app_id = str(request.path_params["app_id"])
        location = request.query_params.get("location", "")
        rows = [
            row
            for row in self.index.rows(app_id, self.viewer(request))
            if location in ("", row.location)
        ]
        if len(rows) == 1:
            return rows[0]
        if rows:
            raise SeveralJobs(rows)
        where = f" in the location {location}" if location else ""
        raise Problem(
            404,
            "No such job",
            f"There is no job {app_id}{where}, or it is one that you may not see. Its history may"
            " have been removed, or may be in a location that this portal does not read.",
        )

    def open(self, request: Request) -> Tuple[JobRow, JobSource]:
        """The job that a URL names, and its source."""
        row = self.find(request)
        return row, self.open_source(row, self.viewer(request))

    # ------------------------------------------------------------------ addresses

    def base(self, request: Request) -> str:
        """The path that the portal lives below."""
        return str(request.scope.get("root_path", "")).rstrip("/")

    def job_url(self, request: Request, row: JobRow, path: str = "", **query: Any) -> str:
        """A page of a job; ``path`` is quoted but for its slashes."""
        if len(self.settings.locations) > 1:
            query["location"] = row.location
        pairs = {name: value for name, value in query.items() if value not in ("", None)}
        rest = f"?{urlencode(pairs)}" if pairs else ""
        return f"{self.base(request)}/jobs/{quote(row.app_id, safe='')}/{quote(path)}{rest}"

    # ------------------------------------------------------------------ answers

    def render(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """A page from a template, or 304 for a reader that has it."""
        base = self.base(request)

        def job_url(row: JobRow, path: str = "", **query: Any) -> str:
            return self.job_url(request, row, path, **query)

        text = self._templates.get_template(template).render(
            base=base,
            path=request.url.path.removeprefix(base),
            style=f"{base}/static/{self.asset_names[STYLE]}",
            script=f"{base}/static/{self.asset_names[SCRIPT]}",
            tabs=self.tabs,
            viewer=getattr(request.state, "viewer", None),
            csrf=str(getattr(request.state, "csrf", "")),
            can_log_out=bool(getattr(request.state, "can_log_out", False)),
            job_url=job_url,
            has_others=self.settings.is_for_many,
            several_locations=len(self.settings.locations) > 1,
            **values,
        )
        data = text.encode(
            "utf-8", "replace"
        )  # a name out of a path may hold half a surrogate pair
        tag = f'"{hashlib.sha256(data).hexdigest()[:24]}"'
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**HEADERS, "ETag": tag})
        return HTMLResponse(data, status, headers={**HEADERS, "ETag": tag})


def check_query(request: Request, *known: str) -> None:
    """Refuse a program's request with a parameter that would be ignored."""
    try:
        check_parameters(request.query_params, known)
    except BadQuery as error:
        raise Problem(400, "Unknown parameter", str(error)) from None


def json_answer(data: Any, status: int = 200) -> Response:
    """Data for programs."""
    return json_bytes(write_value(data).encode(), status)


def json_bytes(data: bytes, status: int = 200) -> Response:
    """JSON that is encoded already."""
    return Response(data, status, headers=HEADERS, media_type="application/json")
