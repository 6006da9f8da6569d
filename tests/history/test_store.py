"""Writing a job's history and reading it again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.second_user import UID, needs_root
from tony_core.files.local import user_name
from tony_core.history import store
from tony_core.history.expiry import expired, remove
from tony_core.history.folder import segments
from tony_core.history.layout import segment_name, segment_number
from tony_core.history.reader import NoHistory, list_jobs, read_config, read_job
from tony_core.history.store import HistoryWriter, encode


def line(number: int, **more: Any) -> bytes:
    return encode({"n": number, "text": f"line {number}", **more})


def writer(root: Path, app_id: str = "app_1") -> HistoryWriter:
    made = HistoryWriter(str(root / app_id))
    made.begin(segments(str(root / app_id)))
    return made


def a_job(root: Path, app_id: str, **job: Any) -> None:
    made = writer(root, app_id)
    made.add(line(1))
    made.summary({"job": {"app_id": app_id, **job}, "tasks": [], "metrics": {}})
    assert made.close() == []


def numbers(root: Path) -> List[int]:
    return [event["n"] for event in read_job(str(root), "app_1").events]


def test_a_place_that_cannot_be_made_is_reported_and_the_fallback_holds_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    troubles: List[str] = []
    made = HistoryWriter(
        str(tmp_path / "file" / "app_1"),
        fallback=str(tmp_path / "kept" / "app_1"),
        on_trouble=troubles.append,
    )
    made.add(line(1))
    made.summary({"job": {}, "tasks": [], "metrics": {}})
    assert made.close() == []
    assert [event["n"] for event in read_job(str(tmp_path / "kept"), "app_1").events] == [1]
    (words,) = troubles
    assert str(tmp_path / "file") in words and "kept at" in words


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.config(b"<configuration/>")
    made.add(line(1))
    made.add(line(2, fields={"a": [1]}))
    made.summary({"job": {"state": "RUNNING"}, "tasks": [{"task": "w:0"}], "metrics": {"x": 1}})
    assert made.close() == []
    found = read_job(str(tmp_path), "app_1")
    assert [event["text"] for event in found.events] == ["line 1", "line 2"]
    assert found.job == {"state": "RUNNING", "app_id": "app_1"}
    assert found.tasks == ({"task": "w:0"},)
    assert found.metrics == {"x": 1}
    assert found.problems == ()
    assert read_config(str(tmp_path), "app_1") == b"<configuration/>"
    assert read_config(str(tmp_path), "app_2") is None


def test_a_full_segment_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SEGMENT_BYTES", 200)
    made = writer(tmp_path)
    for number in range(50):
        made.add(line(number))
    made.close()
    names = segments(str(tmp_path / "app_1"))
    assert len(names) > 5
    assert names[0] == "events-0001.jsonl"
    assert numbers(tmp_path) == list(range(50))


def test_the_next_master_begins_a_segment_of_its_own(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.add(line(1))
    first.close()
    second = writer(tmp_path)
    second.add(line(1001))
    second.close()
    assert segments(str(tmp_path / "app_1")) == ["events-0001.jsonl", "events-0002.jsonl"]
    assert numbers(tmp_path) == [1, 1001]


def test_segments_beyond_four_digits_keep_their_order(tmp_path: Path) -> None:
    names = [segment_name(number) for number in (1, 9999, 10000, 100001)]
    assert [segment_number(name) for name in names] == [1, 9999, 10000, 100001]
    for other in ("events-1.jsonl", "events-0001.jsonl.tmp", "summary.json", "events-x.jsonl"):
        assert segment_number(other) == 0
    folder = tmp_path / "app_1"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("")
    assert segments(str(folder)) == names


def test_a_last_line_cut_short_costs_only_itself(tmp_path: Path) -> None:
    a_job(tmp_path, "app_1", state="RUNNING")
    path = tmp_path / "app_1" / "events-0001.jsonl"
    path.write_bytes(path.read_bytes() + line(2) + b"\n" + line(3)[:7])
    found = read_job(str(tmp_path), "app_1")
    assert [event["n"] for event in found.events] == [1, 2]
    assert found.problems == (), "it is still being written, perhaps"
    a_job(tmp_path, "app_1", state="FAILED", finished=1.0)  # by a next master, in files of its own
    found = read_job(str(tmp_path), "app_1")
    assert [event["n"] for event in found.events] == [1, 2, 1]
    assert found.problems == ("events-0001.jsonl:3: not a whole event, left out",)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0\0"])
def test_a_summary_that_cannot_be_read_costs_only_itself(tmp_path: Path, text: str) -> None:
    a_job(tmp_path, "app_1", state="RUNNING")
    (tmp_path / "app_1" / "summary.json").write_text(text)
    found = read_job(str(tmp_path), "app_1")
    assert len(found.events) == 1
    assert found.job == {}
    assert "summary.json" in found.problems[0]
    (listed,) = list_jobs(str(tmp_path))
    assert (listed["app_id"], listed["state"]) == ("app_1", "UNKNOWN")


def test_no_history(tmp_path: Path) -> None:
    assert list(list_jobs(str(tmp_path / "nowhere"))) == []
    for app_id in ("app_1", "", "..", "../x", ".hidden", "a/b"):
        with pytest.raises(NoHistory):
            read_job(str(tmp_path), app_id)
    with pytest.raises(NoHistory):
        remove(str(tmp_path), "../x")


def test_jobs_are_listed_the_newest_first(tmp_path: Path) -> None:
    for number in (2, 1, 3):
        a_job(tmp_path, f"app_{number}", submitted=float(number), state="SUCCEEDED")
    (tmp_path / "stray").write_text("no folder")
    assert [job["app_id"] for job in list_jobs(str(tmp_path))] == ["app_3", "app_2", "app_1"]


def test_retention(tmp_path: Path) -> None:
    now = time.time()
    day = 24 * 3600.0
    ages: Dict[str, Dict[str, Any]] = {
        "old": {"state": "FAILED", "finished": now - 40 * day},
        "fresh": {"state": "SUCCEEDED", "finished": now - day},
        "running": {"state": "RUNNING"},
        "vanished": {"state": "RUNNING"},
    }
    for app_id, job in ages.items():
        a_job(tmp_path, app_id, **job)
    for path in (tmp_path / "vanished").iterdir():
        os.utime(path, (now - 50 * day, now - 50 * day))
    assert sorted(expired(str(tmp_path), 30 * day)) == ["old", "vanished"]
    assert remove(str(tmp_path), "old")
    assert not remove(str(tmp_path), "old")
    assert expired(str(tmp_path), 30 * day) == ["vanished"]


def test_of_more_than_is_to_be_kept_the_oldest_go(tmp_path: Path) -> None:
    now = time.time()
    for number in range(1, 5):
        finished = now - 1000.0 * number
        a_job(tmp_path, f"app_{number}", state="SUCCEEDED", finished=finished)
    a_job(tmp_path, "app_9", state="RUNNING")
    for path in (tmp_path / "app_9").iterdir():
        os.utime(path, (now - 9000, now - 9000))
    one = sum(path.stat().st_size for path in (tmp_path / "app_1").iterdir())

    def gone(size: int, age: float = 1e9) -> List[str]:
        return expired(str(tmp_path), age, now, retention_bytes=size)

    assert gone(1 << 30) == []
    assert gone(4 * one) == ["app_4"]
    assert gone(2 * one) == ["app_4", "app_3", "app_2"]
    assert gone(1) == ["app_4", "app_3", "app_2", "app_1"], "what runs is kept"
    assert gone(3 * one, age=2500.0) == ["app_3", "app_4", "app_9"], "by age first"


def test_a_summary_that_names_another_job_aims_at_nothing(tmp_path: Path) -> None:
    long_ago = {"state": "FAILED", "finished": 1.0}
    a_job(tmp_path, "liar", **long_ago)
    a_job(tmp_path, "victim", state="RUNNING")
    summary = tmp_path / "liar" / "summary.json"
    data = json.loads(summary.read_text())
    data["job"]["app_id"] = "victim"
    summary.write_text(json.dumps(data))
    warnings: List[str] = []
    assert expired(str(tmp_path), 3600.0, warn=warnings.append) == []
    assert ["liar names another application, 'victim'" in text for text in warnings] == [True]
    assert sorted(job["app_id"] for job in list_jobs(str(tmp_path))) == ["liar", "victim"]


def test_what_is_no_history_never_expires(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_text("x")
    a_job(tmp_path, "-rf", state="FAILED", finished=1.0)
    os.utime(tmp_path / "photos" / "me.jpg", (1, 1))
    warnings: List[str] = []
    assert expired(str(tmp_path), 3600.0, warn=warnings.append) == []
    assert ["'-rf' is not the id of an application" in text for text in warnings] == [True]


@pytest.mark.parametrize("finished", ["soon", [1], None, {}, float("nan"), float("-inf"), True])
def test_an_odd_end_is_no_error(tmp_path: Path, finished: Any) -> None:
    a_job(tmp_path, "app_1", state="FAILED", finished=finished)
    assert expired(str(tmp_path), 3600.0) in ([], ["app_1"])


def test_a_summary_is_replaced_whole(tmp_path: Path) -> None:
    made = writer(tmp_path)
    for number in range(20):
        made.summary({"job": {"n": number}}, final=number == 19)
    assert made.close() == []
    assert json.loads((tmp_path / "app_1" / "summary.json").read_text()) == {"job": {"n": 19}}
    assert [path.name for path in (tmp_path / "app_1").iterdir()] == ["summary.json"]


def test_a_folder_that_holds_no_history_is_no_job(tmp_path: Path) -> None:
    a_job(tmp_path, "app_1", state="SUCCEEDED")
    a_job(tmp_path, "evil<script>", state="RUNNING")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "README").write_text("not a job")
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "events-0001.jsonl").write_text("")
    found = {str(job["app_id"]): job["state"] for job in list_jobs(str(tmp_path))}
    assert found == {"app_1": "SUCCEEDED", "begun": "UNKNOWN"}


def test_the_id_is_the_folders_name_everywhere(tmp_path: Path) -> None:
    a_job(tmp_path, "mine", state="RUNNING")
    summary = tmp_path / "mine" / "summary.json"
    data = json.loads(summary.read_text())
    data["job"]["app_id"] = "yours"
    summary.write_text(json.dumps(data))
    assert read_job(str(tmp_path), "mine").job["app_id"] == "mine"
    assert [job["app_id"] for job in list_jobs(str(tmp_path))] == ["mine"]


@needs_root
def test_where_others_write_a_jobs_user_is_the_owner_of_its_folder(tmp_path: Path) -> None:
    a_job(tmp_path, "app_1", state="RUNNING", user="victim")
    root = str(tmp_path)
    os.chown(tmp_path / "app_1", UID, UID)
    (tmp_path / "app_2").symlink_to(tmp_path / "app_1")
    users = {str(job["app_id"]): job["user"] for job in list_jobs(root, by_owner=True)}
    assert users == {"app_1": str(UID), "app_2": user_name(0)}, "a link is its maker's"
    assert read_job(root, "app_1", by_owner=True).job["user"] == str(UID)
    assert read_job(root, "app_1").job["user"] == "victim"
