"""The index: pages, cursors, search, filters, sums, and what a viewer may see of them."""

from __future__ import annotations

import random
import sqlite3
import threading
from pathlib import Path
from typing import Any, Iterator, List, Sequence

import pytest

from tests.portal.histories import NOW, app
from tony_core.portal.index import answers, database, queries
from tony_core.portal.index import index as index_module
from tony_core.portal.index.build import words_of
from tony_core.portal.index.database import IndexInUse
from tony_core.portal.index.entries import AGAIN, Entry
from tony_core.portal.index.index import Index
from tony_core.portal.index.queries import BadQuery
from tony_core.portal.index.rows import JobRow, Query
from tony_core.portal.index.schema import FACETS, SORTS
from tony_core.portal.job_folders import Fingerprint
from tony_core.portal.viewer import Viewer, readers

ADMIN = Viewer("root", is_admin=True)
ANN = Viewer("ann")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(str(tmp_path / "index"))
    yield made
    made.close()


def job(number: int, owner: str = "ann", acl: str = "", **more: Any) -> JobRow:
    facts: Any = {
        "location": "here", "app_id": app(number), "owner": owner, "name": f"job-{number}",
        "queue": "default", "framework": "pytorch", "state": "SUCCEEDED",
        "submitted": NOW + number, "started": NOW + number + 1, "finished": NOW + number + 60,
        "progress": 1.0, "tasks": 2, "readers": tuple(sorted(readers(owner, acl))),
    }  # fmt: skip
    return JobRow(**{**facts, **more})


def put(index: Index, *rows: JobRow) -> None:
    index.put(Entry(row, words_of(row), Fingerprint("d", row.submitted, 10, True)) for row in rows)


def ids(rows: Sequence[JobRow]) -> List[int]:
    return [int(row.app_id[-4:]) for row in rows]


def found(index: Index, viewer: Viewer = ADMIN, **query: Any) -> List[int]:
    return ids(index.page(Query(**query), viewer).rows)


def pages(index: Index, query: Query, viewer: Viewer = ADMIN) -> List[JobRow]:
    """A whole list, page by page."""
    rows: List[JobRow] = []
    while True:
        page = index.page(query, viewer)
        rows += page.rows
        if not page.next:
            assert page.total == len(rows)
            return rows
        assert len(page.rows) == query.limit
        query = query._replace(after=page.next)


def test_a_row_comes_back_as_it_was(index: Index) -> None:
    row = job(
        1, acl="bob ops", error="worker:0 failed", tags=("a", "b"), pipeline="airflow:d.t",
        figures={"gpu_hours": 1.5, "result.loss": 0.25}, problem="summary.json is damaged",
    )  # fmt: skip
    running = job(2, state="RUNNING", started=None, finished=None, progress=0.5)
    put(index, row, running)
    assert index.page(Query(), ADMIN).rows == (running, row)
    assert index.rows(app(1), ADMIN) == (row,)
    put(index, row._replace(state="FAILED", tags=("c",)))
    assert index.rows(app(1), ADMIN) == (row._replace(state="FAILED", tags=("c",)),)
    assert found(index, tag="a") == [] and found(index, tag="c") == [1]


def test_every_sort_and_direction_pages_through_the_whole_list(index: Index) -> None:
    luck = random.Random(5)
    rows = [
        job(
            number, owner=luck.choice(("ann", "bob")), name=luck.choice("abc"),
            state=luck.choice(("RUNNING", "FAILED")), submitted=NOW + luck.randrange(9),
            finished=luck.choice((None, NOW + luck.randrange(99))),
            figures={"gpu_hours": luck.choice((0.0, 1.0, 2.5))},
        )
        for number in range(60)
    ]  # fmt: skip
    put(index, *rows)
    for name, column in SORTS.items():
        for sign in ("", "-"):
            listed = pages(index, Query(sort=f"{sign}{name}", limit=7))
            assert sorted(ids(listed)) == list(range(60)), (name, sign)
            values = [getattr(row, column, None) or row.figures.get(column, 0.0) for row in listed]
            if isinstance(values[0], (int, float)):
                values = [value or 0.0 for value in values]
            assert values == sorted(values, reverse=bool(sign)), (name, sign)


def test_both_ways_to_read_a_list_give_the_same(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(6)
    put(index, *(job(number, owner=luck.choice(("ann", "bob")), queue=luck.choice("xyz"),
                     acl=luck.choice(("", "ann")), submitted=NOW + luck.randrange(20),
                     tags=(luck.choice("pq"),)) for number in range(80)))  # fmt: skip
    lists = [
        (viewer, Query(sort=sort, limit=9, **more))
        for viewer in (ADMIN, ANN, Viewer("eve"))
        for sort in ("-submitted", "name", "-user")
        for more in ({}, {"queue": "x"}, {"tag": "p", "user": "bob"}, {"q": "job"},
                     {"since": NOW + 5, "until": NOW + 9, "q": "d"})
    ]  # fmt: skip
    by_filter = [pages(index, query, viewer) for viewer, query in lists]
    monkeypatch.setattr(queries, "FEW", -1)
    assert [pages(index, query, viewer) for viewer, query in lists] == by_filter
    assert any(by_filter) and by_filter[-1] == []


def test_a_cursor_holds_when_jobs_come_and_go_and_the_index_is_made_anew(index: Index) -> None:
    rows = [job(number, submitted=NOW) for number in range(10)]
    put(index, *rows)
    first = index.page(Query(limit=4), ADMIN)
    put(index, job(99))
    assert ids(index.page(Query(limit=9, after=first.next), ADMIN).rows) == [4, 5, 6, 7, 8, 9]
    index.rebuild()
    put(index, *rows)
    assert ids(index.page(Query(limit=9, after=first.next), ADMIN).rows) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("resnet", [1]),
        ("RES 50", [1]),
        ("res", [2, 1]),
        ("application_1750000000000_0002", [2]),
        ("application_1750000000000_00", [2, 1]),
        ("ann fail", [2]),
        ("exited with 137", [2]),
        ("airflow:nightly.tr", [1]),
        ("gpu-quality", [2]),
        ("net", []),  # the middle of a word
        ("NÜRNBERG", [2]),
        ('" OR name:', []),
        ('"*', [2, 1]),
        ("NOT AND OR", []),
        ("res*", [2, 1]),
        ("a^b -c (d) {e} NEAR(f)", []),
        ("\0 res", [2, 1]),
        ("\ud800 res", [2, 1]),
        ("   ", [2, 1]),
        ("?!", [2, 1]),
    ],
)
def test_search_by_the_beginnings_of_words(index: Index, words: str, expected: List[int]) -> None:
    put(
        index,
        job(1, name="ResNet-50", pipeline="airflow:nightly.train"),
        job(2, name="restored nürnberg", state="FAILED", error="worker:1 exited with 137",
            queue="gpu-quality"),
    )  # fmt: skip
    assert found(index, q=words) == expected


def test_a_changed_job_is_found_by_its_new_words_only(index: Index) -> None:
    put(index, job(1, name="before"))
    put(index, job(1, name="after"))
    assert found(index, q="before") == [] and found(index, q="after") == [1]
    index.remove("here", [app(1), app(2)])
    assert found(index, q="after") == [] and index.page(Query(), ADMIN).total == 0
    put(index, job(3))  # may get the number of the one before
    assert found(index, q="after") == []


def test_filters(index: Index) -> None:
    put(
        index,
        job(1, queue="gpu", state="FAILED", tags=("a",), pipeline="p"),
        job(2, owner="bob", framework="jax", location="there"),
        job(3, state="RUNNING", tags=("a", "b")),
    )
    assert found(index, state=("FAILED", "RUNNING")) == [3, 1]
    assert found(index, queue="gpu") == [1] == found(index, pipeline="p")
    assert found(index, user="bob") == [2] == found(index, framework="jax", location="there")
    assert found(index, tag="a") == [3, 1] and found(index, tag="a", state=("FAILED",)) == [1]
    assert found(index, since=NOW + 2, until=NOW + 2.5) == [2]
    assert found(index, queue="'; DROP TABLE jobs; --") == []
    assert index.page(Query(tag="a", limit=1), ADMIN).total == 2


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"sort": "words"}, "sort: unknown column 'words'"),
        ({"sort": "--submitted"}, "sort: unknown column"),
        ({"after": "x"}, "after: this is no cursor"),
        ({"after": "W10"}, "after: this is no cursor"),
        ({"after": "ö"}, "after: this is no cursor"),
        ({"after": "WyJuYW1lIixmYWxzZSwieCIsMSwiYSIsImIiXQ"}, "sorted otherwise"),
        ({"since": float("nan")}, "since: nan is no time"),
        ({"until": 1e300}, "until: "),
        ({"q": "x" * 501}, "q: longer"),
        ({"q": "x " * 11}, "q: more than"),
        ({"user": "x" * 501}, "user: longer"),
    ],
)
def test_a_bad_query_names_what_is_wrong(index: Index, query: Any, words: str) -> None:
    with pytest.raises(BadQuery, match=words.replace("(", r"\(")):
        index.page(Query(**query), ADMIN)


def test_limits_are_bounded(index: Index) -> None:
    put(index, *(job(number) for number in range(3)))
    assert found(index, limit=-5) == [2] == found(index, limit=0)
    assert len(found(index, limit=10**9)) == 3


# ------------------------------------------------------------------ who sees what


def test_a_viewer_sees_his_own_jobs_and_those_that_are_shared_with_him(index: Index) -> None:
    put(index, job(1), job(2, owner="bob"), job(3, owner="bob", acl="ann"),
        job(4, owner="bob", acl=" ops"), job(5, owner="bob", acl="*"))  # fmt: skip
    assert found(index, ANN) == [5, 3, 1] and index.page(Query(), ANN).total == 3
    assert found(index, Viewer("eve", frozenset(["ops"]))) == [5, 4]
    assert found(index, Viewer("user:bob")) == [5] == found(index, Viewer(""))
    assert found(index, ADMIN) == [5, 4, 3, 2, 1]
    assert index.rows(app(2), ANN) == () and ids(index.rows(app(3), ANN)) == [3]
    assert found(index, ANN, q="job-2") == [] == found(index, ANN, user="bob", queue="none")
    put(index, job(3, owner="bob"))  # shared no longer
    assert found(index, ANN) == [5, 1]


def test_sums_and_facets_are_of_visible_jobs(index: Index) -> None:
    hours = {"gpu_hours": 2.0}
    put(index, job(1, figures=hours), job(2, state="FAILED", figures=hours),
        job(3, owner="bob", figures=hours, queue="secret"))  # fmt: skip
    (mine,) = index.usage("user", ANN)
    assert (mine.key, mine.jobs, mine.states) == ("ann", 2, {"FAILED": 1, "SUCCEEDED": 1})
    assert mine.figures["gpu_hours"] == 4.0 and mine.last == NOW + 2
    assert [each.key for each in index.usage("user", ADMIN)] == ["ann", "bob"]
    assert [each.key for each in index.usage("day", ADMIN)] == ["2025-06-15"]
    assert index.usage("queue", ANN, since=NOW + 60) == []
    with pytest.raises(BadQuery, match="by: unknown 'words'"):
        index.usage("words", ANN)
    assert index.facets(ANN)["state"] == {"FAILED": 1, "SUCCEEDED": 1}
    assert "secret" not in index.facets(ANN)["queue"] and set(index.facets(ANN)) == set(FACETS)
    assert index.facets(ADMIN)["queue"] == {"default": 2, "secret": 1}
    index.remove("here", [app(3)])
    assert index.facets(ADMIN)["user"] == {"ann": 2}


def test_counts_and_sums_are_of_the_index_as_it_was_made_last(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "REPEATED", 1e9)
    put(index, job(1), job(2))
    assert index.page(Query(q="job"), ADMIN).total == 2 and index.usage("user", ADMIN)[0].jobs == 2
    index.rebuild()
    assert index.page(Query(q="job"), ADMIN).total == 0 and index.usage("user", ADMIN) == []


def test_which_of_many_jobs_it_has_by_id_and_owner(index: Index) -> None:
    put(index, job(1), job(2, "bob"))
    asked = [(app(1), "ann"), (app(2), "ann"), (app(2), "bob"), (app(3), "ann")]
    assert index.known(asked) == {(app(1), "ann"), (app(2), "bob")}
    assert index.known([]) == set()


def test_runs_of_a_pipeline_and_of_a_tag(index: Index) -> None:
    put(index, job(1, pipeline="p", tags=("t",)), job(2, pipeline="p"), job(3, tags=("t",)),
        job(4, owner="bob", pipeline="p"))  # fmt: skip
    assert ids(index.runs(ADMIN, pipeline="p")) == [1, 2, 4]
    assert ids(index.runs(ANN, pipeline="p", since=NOW + 2)) == [2]
    assert ids(index.runs(ANN, tag="t")) == [1, 3]
    assert ids(index.runs(ADMIN, pipeline="p", owner="bob")) == [4]


def test_a_public_portal_shows_all_to_all(tmp_path: Path) -> None:
    index = Index(str(tmp_path), is_public=True)
    put(index, job(1, owner="bob"))
    (row,) = index.page(Query(), ANN).rows
    assert "*" in row.readers and index.facets(ANN)["user"] == {"bob": 1}
    index.close()


# ------------------------------------------------------------------ the file


def test_the_index_stays_and_another_versions_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(str(tmp_path))
    put(index, job(1))
    index.close()
    index = Index(str(tmp_path))
    assert found(index) == [1] and index.generation == 0
    index.close()
    monkeypatch.setattr(database, "STAMP", "another")
    index = Index(str(tmp_path))
    assert found(index) == [] and index.generation == 1
    index.close()


@pytest.mark.parametrize(
    "damage", [b"no database at all" * 500, b"", b"SQLite format 3\0" + b"x" * 9000]
)
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "index.sqlite").write_bytes(damage)
    index = Index(str(tmp_path))
    put(index, job(1))
    assert found(index) == [1]
    index.close()


def test_pages_in_the_middle_are_checked(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    put(index, *(job(number) for number in range(500)))
    index.close()
    path = tmp_path / "index.sqlite"
    data = bytearray(path.read_bytes())
    data[4096 * 8 : 4096 * 30] = random.Random(1).randbytes(4096 * 22)
    path.write_bytes(data)
    index = Index(str(tmp_path))
    assert index.generation == 1 and found(index) == []
    index.close()


def test_the_folder_is_its_owners_and_one_portals(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "index"
    index = Index(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "index.sqlite").stat().st_mode & 0o777 == 0o600
    with pytest.raises(IndexInUse, match="another portal uses the index"):
        Index(str(folder))
    index.close()
    Index(str(folder)).close()


def test_readers_cannot_write(index: Index) -> None:
    with index._database.read() as reader, pytest.raises(sqlite3.OperationalError):
        reader.execute("DELETE FROM jobs")


def test_many_threads_ask_while_one_writes(index: Index) -> None:
    put(index, *(job(number) for number in range(50)))
    wrong: List[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(30):
                assert len(found(index, q="job", limit=50)) == 50
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(50):
        put(index, job(number, progress=0.5))
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_value_that_no_table_takes_hides_no_other_job(index: Index) -> None:
    """Files of holes may have more bytes than a column; what else is odd is that job's problem."""
    rows = [job(1), job(2), job(3, progress=float("nan")), job(4, owner="\udc80"), job(5)]
    index.put(
        Entry(row, words_of(row), Fingerprint("d", row.submitted, 1 << 64, True, 1 << 64))
        for row in rows
    )
    assert found(index, sort="app_id") == [1, 2, 3, 5]
    assert index.rows(app(3), ADMIN)[0].problem.startswith("the index does not take")
    assert index.rows(app(2), ADMIN)[0].problem == ""
    assert index.held("here") == {"ann": 4 << 62}


def test_the_oldest_come_first_without_what_cannot_be_opened(index: Index) -> None:
    facts = [(1, "ann", 30.0, 7.0), (2, "bob", 10.0, 7.0), (3, "ann", None, 20.0)]
    index.put(
        Entry(job(number, owner=owner, finished=at), "", Fingerprint("d", changed, 1, True, 5))
        for number, owner, at, changed in facts
    )
    index.put([Entry(job(4, finished=None), "", Fingerprint(AGAIN))])
    assert [old.app_id for old in index.oldest("here")] == [app(2), app(3), app(1)]
    first, second = index.oldest("here", "ann")
    assert first == (app(3), 20.0, 5, False, "ann", 20.0)
    assert second == (app(1), 30.0, 5, True, "ann", 7.0)
    assert index.held("here") == {"ann": 10, "bob": 5}


def test_all_of_the_oldest_come_in_parts(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_PART", 3)
    put(index, *(job(number, finished=NOW + number // 4) for number in range(20)))
    assert [old.app_id for old in index.oldest("here")] == [app(number) for number in range(20)]


def test_audiences_and_counts_that_no_job_has_are_gone(index: Index) -> None:
    def sizes() -> List[int]:
        with index._database.read() as reader:
            return [
                reader.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("audiences", "readers", "counts")
            ]

    put(index, job(1), job(2, acl="bob"))
    before = sizes()
    for number in range(50):
        acl = " ".join(f"user-{number}-{other}" for other in range(20))
        put(index, job(2, acl=acl, queue=f"queue-{number}", state="RUNNING"))
    put(index, job(2, acl="bob", state="RUNNING"))
    put(index, job(2, acl="bob"))
    assert sizes() == before
    assert found(index, Viewer("bob")) == [2] and found(index, ANN) == [2, 1]
    index.remove("here", [app(1), app(2)])
    assert sizes() == [0, 0, 0]
    put(index, job(1))
    assert found(index, ANN) == [1]
