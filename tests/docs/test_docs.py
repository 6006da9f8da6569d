"""What the documentation shows is held against the product."""

from __future__ import annotations

import argparse
import configparser
import re
from pathlib import Path
from typing import List

import pytest

from tests.docs.pages import (
    CHECKOUT,
    PAGES,
    Block,
    anchors,
    blocks,
    command_lines,
    links,
    lists,
    words_of,
)
from tony_core.cli.main import main
from tony_core.cli.parser import Parser
from tony_core.cli.verbs import VERBS, parser_of
from tony_core.client.errors import UsageError
from tony_core.history import metric_series
from tony_core.job.keys.table import table
from tony_core.job.spec import Job
from tony_core.master.executors import task_commands
from tony_core.master.tracking import log_queue, tracker
from tony_core.master.web import tunnels
from tony_core.protocol import tunnel
from tony_executor.monitoring import observer, telemetry

XML = blocks("xml")
PYTHON = blocks("python")
COMMANDS = command_lines()

# Beginnings of keys that the text speaks of, and names of files.
NO_KEYS = {
    "tony.xml", "tony.<role>", "tony.am", "tony.execution", "tony.containers", "tony.dev",
    # the module of programs, the entry points, and a typing error on purpose
    "tony.report", "tony.task", "tony.checkpoints", "tony.dataset", "tony.upload", "tony.py",
    "tony.xgboost_communicator", "tony.ray_init", "tony.lightgbm_parameters",
    "tony.on_preemption", "tony.preemption",
    "tony.result", "tony.schedulers", "tony.frameworks", "tony.pools", "tony.worker.memroy",
    "tony.advised.xml",
}  # fmt: skip


# ------------------------------------------------------------------ job files


@pytest.mark.parametrize("block", XML, ids=str)
def test_job_files_are_without_problems(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("tony.xml").write_text(block.text)
    assert main(["config", "check", "tony.xml"]) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out.splitlines()
    # A command may come from the command line.
    assert [
        line for line in printed if "no command" not in line and "no problems" not in line
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_keys_are_keys(page: str) -> None:
    text = PAGES[page].read_text()
    for name in sorted(set(re.findall(r"(?<![\w/.-])tony\.[a-z<][\w<>.-]*[\w>]", text))):
        if name not in NO_KEYS and not name.endswith(".jax_initialize"):
            assert table().find(name), f"{name} on {page} is no key"


# ------------------------------------------------------------------ Python


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_programs_compile(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", [b for b in PYTHON if b.page.startswith("docs/")], ids=str)
def test_what_programs_import_of_ours_is_there(block: Block) -> None:
    if "tony_airflow" in block.text:
        pytest.importorskip("tests.tony_airflow.conftest", exc_type=ImportError)  # sets Airflow up
    for line in block.text.splitlines():
        if re.match(r"(import|from) tony", line):
            exec(line, {})


@pytest.mark.parametrize("block", [b for b in PYTHON if "= job(" in b.text], ids=str)
def test_jobs_built_in_python_are_jobs(block: Block) -> None:
    names: dict[str, object] = {}
    exec(block.text, names)
    assert isinstance(names["mnist"], Job)
    assert names["mnist"].timeouts.application_s == 7200.0


# ------------------------------------------------------------------ command lines


@pytest.mark.parametrize("block", COMMANDS, ids=lambda b: f"{b.page}:{b.line}:{b.text[:30]}")
def test_command_lines_are_understood(block: Block) -> None:
    verb, *rest = words_of(block.text)[1:] or ["--help"]
    if "--" in rest:  # a command follows
        rest = rest[: rest.index("--")]
    if verb.startswith("--"):
        assert verb in ("--help", "--version")
        return
    if verb.isupper():  # tony VERB ...
        return
    assert verb in VERBS, f"there is no tony {verb}"
    parser = parser_of(verb)
    if _is_whole(block.text):
        try:
            parser.parse_args(parser.respell([word for word in rest if word != "--help"]))
        except UsageError as error:
            pytest.fail(f"{block}: {block.text}: {error}", pytrace=False)
    else:
        _known_options(parser, verb, rest)


def _is_whole(command: str) -> bool:
    """Not a pattern with parts to fill in, and not a mere name of a verb in the text."""
    return (
        not re.search(r"\[|\.\.\.|\b[A-Z]{2,}\b(?![_=])|=K\b", command) and command.count(" ") > 1
    )


def _known_options(parser: Parser, verb: str, words: List[str]) -> None:
    plain = [word.strip("[]") for word in words]
    positions = [word for word in plain if not word.startswith("-")]
    if verb in ("azkaban", "config", "history") and positions:
        (below,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        assert positions[0] in below.choices, f"there is no tony {verb} {positions[0]}"
        parser = below.choices[positions[0]]
    for word in plain:
        if word.startswith("-"):
            option = word.partition("=")[0]
            known = parser._option_string_actions
            assert option in known or option in parser.spellings(), f"tony {verb} has no {option}"


def test_the_verbs_are_all_described() -> None:
    page = PAGES["docs/cli.md"].read_text()
    for verb in VERBS:
        assert re.search(rf"^\| (\[?)`{verb}`", page, re.MULTILINE), verb


def test_every_word_of_submit_is_described() -> None:
    page = PAGES["docs/cli.md"].read_text()
    for option in parser_of("submit")._option_string_actions:
        if option.startswith("--") and option not in ("--help", "--debug"):
            assert f"`{option}" in page or f"`{option.replace('-', '_')}" in page, option


# ------------------------------------------------------------------ links


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if re.match(r"[a-z]+://", link):
            continue
        where, _, anchor = link.partition("#")
        target = (PAGES[page].parent / where).resolve() if where else PAGES[page]
        assert target.exists(), f"{page}: {link}"
        assert CHECKOUT in [target, *target.parents], f"{page}: {link} leaves the checkout"
        if anchor:
            assert anchor in anchors(target), f"{page}: {link}: {anchors(target)}"


@pytest.mark.parametrize("page", PAGES)
def test_no_list_repeats_a_sentence(page: str) -> None:
    """As after two branches that changed the same list."""
    for items in lists(page):
        items = [item for item in items if not item.startswith("**")]  # a subject, not a sentence
        begins = [re.split(r"[.:;] ", item)[0] for item in items]
        assert [text for text in begins if begins.count(text) > 1] == []


def test_what_is_untried_names_each_thing_once() -> None:
    text = PAGES["docs/portal.md"].read_text().partition("\n## What is untried\n")[2]
    things = ("identity provider", "oidc-provider-mock", "real proxy", "container file", "the unit")
    for thing in (*things, "TensorBoard of folders", "`tensorboard-url`"):
        assert text.count(thing) == 1, thing


def test_every_page_can_be_found() -> None:
    index = PAGES["docs/README.md"]
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links("docs/README.md")}
    missing = [page for page, path in PAGES.items() if page.startswith("docs/")
               and path != index and path not in linked]  # fmt: skip
    assert missing == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/schedulers.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", PAGES[page].read_text(), flags=re.MULTILINE | re.DOTALL)
    there = ["/__main__.py"] + [
        f"/{path.relative_to(CHECKOUT)}"
        for root in ("tony_core", "executor", "program", "plugins", "benchmarks", "tests")
        for path in (CHECKOUT / root).rglob("*.py")
    ]
    named = set(re.findall(r"`([a-z_\d/]+\.py)`", text))
    missing = [name for name in named if not any(path.endswith(f"/{name}") for path in there)]
    assert missing == []


@pytest.mark.parametrize("page", [name for name in PAGES if "CHANGELOG" not in name])
def test_what_pip_is_to_install_of_ours_is_this_checkout(page: str) -> None:
    # No index has the package.
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    for words in re.findall(r"pip install ([^\n`]*)", PAGES[page].read_text()):
        assert "tony-py" not in words, words
        for named in re.findall(r"\.\[([^\]]*)\]", words):
            assert set(named.split(",")) <= extras, words


HALF = {0.5: "half", 1.0: "whole"}


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("notebook-and-shell", f"A job has at most {tunnels.MOST_OPEN} tunnels at a time"),
        ("notebook-and-shell", f"and {tunnel.MAX_STREAMS} streams in all of them"),
        ("metrics", f"read every {HALF[observer.REPORTS_EVERY_S]} second"),
        ("metrics", f"takes {task_commands.SENT_A_SECOND:g} reports and"),
        ("metrics", f"and {task_commands.LONGEST_SENDING_INTERVAL_S:g} s apart at most"),
        ("metrics", f"history keeps up to {metric_series.POINTS} points of a metric"),
        ("metrics", f"(at least {metric_series.FEWEST}) where"),
        ("metrics", f"the first {log_queue.MOST_NAMES:,} names of metrics"),
        ("metrics", f"the first {tracker.MOST_PARAMS} parameters"),
        ("program", f"takes the first {telemetry.MAX_NAMES}."),
        ("program", f"a name of more than {telemetry.LONGEST_NAME} characters"),
    ],
)
def test_documented_limits_are_those_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join(PAGES[f"docs/{page}.md"].read_text().split())
