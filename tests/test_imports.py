"""Imports point downwards only, and what runs on the nodes runs on the nodes' Python."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

import pytest

from tests.importgraph import CHECKOUT, Graph, crossings, room_of, within

_BOTTOM = (
    "tony_core.durations",
    "tony_core.exit_causes",
    "tony_core.unexpected_errors",
    "tony_core.jsontext",
    "tony_core.hadoop",
    "tony_core.files",
    "tony_core.files.webhdfs",
    "tony_core.job",
    "tony_core.loopback",
    "tony_core.measures",
    "tony_core.plugins",
    "tony_core.printable",
    "tony_core.version",
)
_CLIENT = (
    "tony_core.charts",
    "tony_core.view",
    "tony_core.prometheus",
    "tony_core.schedulers",
    "tony_core.bundle",
    "tony_core.bundle.jobfolder",
    "tony_core.history",
    "tony_core.frameworks",
    *_BOTTOM,
)

ALLOWED: Mapping[str, Tuple[str, ...]] = {
    "tony_core": (),
    "tony_core.version": (),
    "tony_core.charts": ("tony_core.jsontext", "tony_core.measures"),
    "tony_core.static": (),
    "tony_core.durations": ("tony_core.jsontext",),
    "tony_core.exit_causes": (),
    "tony_core.unexpected_errors": (),
    "tony_core.jsontext": (),
    "tony_core.loopback": (),
    "tony_core.measures": (),
    "tony_core.plugins": (),
    "tony_core.printable": (),
    "tony_core.job": ("tony_core.jsontext", "tony_core.printable"),
    "tony_core.protocol": ("tony_core.protocol.job_secret",),
    # Of hadoop: where the NameNodes are, by the site files.
    "tony_core.files": ("tony_core.hadoop", "tony_core.files.webhdfs"),
    # Travels with programs; the reader of token files is there as well.
    "tony_core.files.webhdfs": (),
    "tony_core.hadoop": ("tony_core.version", "tony_core.files.webhdfs"),
    "tony_core.bundle": ("tony_core.bundle.localization", "tony_core.bundle.jobfolder", *_BOTTOM),
    # What was bundled is unpacked on the nodes: one of two ways from there into the bundle.
    "tony_core.bundle.localization": ("tony_core.bundle", *_BOTTOM),
    # The master removes the job folder at the job's end; so does who ends a job without one.
    "tony_core.bundle.jobfolder": ("tony_core.bundle", *_BOTTOM),
    "tony_core.history": _BOTTOM,
    "tony_core.schedulers": (
        "tony_core.bundle.jobfolder",
        "tony_core.bundle.localization",
        *_BOTTOM,
    ),
    "tony_core.view": ("tony_core.schedulers", "tony_core.jsontext"),
    "tony_core.prometheus": ("tony_core.view", "tony_core.schedulers", "tony_core.measures"),
    "tony_core.frameworks": (
        "tony_core.job",
        "tony_core.plugins",
        "tony_core.protocol",
    ),
    "tony_core.master": (
        "tony_core.charts",
        "tony_core.static",
        "tony_core.view",
        "tony_core.prometheus",
        "tony_core.schedulers",
        "tony_core.bundle.jobfolder",
        "tony_core.bundle.localization",
        "tony_core.frameworks",
        "tony_core.history",
        "tony_core.protocol",
        "tony_core.protocol.job_secret",
        "tony_core.durations",
        "tony_core.exit_causes",
        "tony_core.unexpected_errors",
        "tony_core.jsontext",
        "tony_core.loopback",
        "tony_core.measures",
        "tony_core.printable",
        "tony_core.files",
        "tony_core.job",
        "tony_core.version",
    ),
    "tony_core.advice": ("tony_core.history", *_BOTTOM),
    # Of protocol: the client's end of a tunnel into a job's containers.
    "tony_core.client": (
        "tony_core.advice",
        "tony_core.protocol",
        "tony_core.protocol.job_secret",
        *_CLIENT,
    ),
    # How a job's secret is laid out: the client makes it, master and executor read it.
    "tony_core.protocol.job_secret": ("tony_core.protocol",),
    # Of protocol: whose process holds a connection of this machine.
    "tony_core.portal": (
        "tony_core.advice",
        "tony_core.static",
        "tony_core.client",
        "tony_core.protocol",
        *_CLIENT,
    ),
    "tony_core.cli": (
        "tony_core.advice",
        "tony_core.client",
        "tony_core.portal",
        "tony_core.protocol",
        *_CLIENT,
    ),
    "tony_executor": (
        "tony_core.protocol",
        "tony_core.protocol.job_secret",
        "tony_core.exit_causes",
        "tony_core.loopback",
        "tony_core.measures",
        "tony_core.version",
        "tony_core.files.webhdfs",  # writes token files
    ),
    "tony_airflow": ("tony_core.client", *_CLIENT),
    "tony_azkaban": ("tony_core.client", "tony_core.cli", *_CLIENT),
}
"""Each room, and the rooms it may import from (itself always)."""

EXECUTOR_SIDE = (
    "tony_executor",
    "tony_core.protocol",
    "tony_core.schedulers.yarn.node.start",
    "tony_core.schedulers.yarn.node.find_master",
)
"""Runs on the nodes on Python 3.8, with all that it imports."""

MASTER_SIDE = (
    "tony_core.master",
    "tony_core.frameworks",
    "tony_core.hadoop",
    "tony_core.schedulers.local",
    "tony_core.schedulers.yarn.master.pool_factory",
)
"""Runs on the nodes on Python 3.9, with all that it imports."""

THIRD_PARTY = {
    "tony_core": {"lxml", "rich"},
    # The extra "portal".
    "tony_core.portal": {
        *("authlib", "fastavro", "httpx", "itsdangerous", "jinja2", "markupsafe"),
        *("prometheus_client", "starlette", "uvicorn"),
        *("tensorboard", "werkzeug"),  # by a process of its own
    },
    "tony_azkaban": {"requests"},
    # tony: what the function of a @task.tony runs beside, as any program does. hdfs, requests: of
    # the provider of HDFS.
    "tony_airflow": {
        *("airflow", "asgiref", "attrs", "fastapi", "flask", "hdfs", "openlineage", "requests"),
        "tony",
    },
}
"""What may be imported beyond the standard library and ourselves: install_requires, extras."""

#: What makes data classes, and libraries that cost every process 10 ms or more.
_DEAR = (
    "dataclasses inspect ast dis tokenize asyncio logging multiprocessing pickle requests rich"
    " jinja2 urllib.request xmlrpc"
)
_WEB = "http.client email ssl hashlib"

NOT_LOADED: Mapping[str, Tuple[str, str]] = {
    "tony --help": (
        "main(['--help'])",
        f"{_DEAR} {_WEB} lxml subprocess socket tony_core.job.spec tony_core.view",
    ),
    "tony list": (
        "main(['list'])",
        f"{_DEAR} {_WEB} lxml socket tony_core.view tony_core.bundle tony_core.job.load"
        " tony_core.schedulers.container_pool tony_core.schedulers.local.allocation",
    ),
    "tony status": (
        "main(['status', 'local_1'])",
        f"{_DEAR} {_WEB} lxml socket tony_core.bundle tony_core.job.load"
        " tony_core.schedulers.container_pool tony_core.schedulers.local.allocation",
    ),
    "tony submit": (
        "main(['submit', '--dry-run', '--executes', 'true'])\n"
        "import tony_core.cli.follow, tony_core.cli.presenters, tony_core.client.watch",
        f"{_DEAR} tony_core.protocol.messages tony_core.schedulers.container_pool"
        " tony_core.schedulers.local.ledger tony_core.schedulers.local.pool",
    ),
    "master, embedded scheduler": (
        "import tony_core.master.main, tony_core.schedulers.local.pool",
        f"{_DEAR} {_WEB} lxml xml argparse tony_core.client tony_core.job.load",
    ),
    "master, YARN": (
        "import tony_core.master.main, tony_core.schedulers.yarn.master.pool_factory",
        f"{_DEAR} {_WEB} lxml argparse tony_core.client tony_core.job.load"
        " tony_core.schedulers.yarn.client",
    ),
    "tony history export": (
        "import tony_core.portal.export",
        "starlette anyio uvicorn httpx authlib tony_core.portal.site",
    ),
    "client, YARN": (
        "import tony_core.schedulers.yarn.client.scheduler",
        f"{_DEAR} {_WEB} lxml tony_core.schedulers.container_pool",
    ),
}
"""What a process runs, and the modules that must not be loaded then: each costs its start."""

VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}

LONGEST = 500
"""Lines of a module at most; 100 to 400 is what to aim at."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph()


def foreign(graph: Graph, modules: List[str]) -> List[str]:
    """The imports, in these modules, of what is neither ours nor the standard library's."""
    return [
        str(found)
        for module in modules
        for found in graph.imports(module)
        if not (graph.ours(found.imported) or found.typing_only)
        and found.imported.partition(".")[0] not in sys.stdlib_module_names
    ]


def unreadable(graph: Graph, modules: List[str], version: Tuple[int, int]) -> List[str]:
    """The modules whose syntax is newer than a version of Python, with where."""
    wrong = []
    for module in modules:
        path = graph.files[module]
        try:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=version)
        except SyntaxError as error:
            wrong.append(f"{module}, line {error.lineno}: {error.msg}")
    return wrong


def test_imports_point_downwards_only(graph: Graph) -> None:
    assert crossings(graph, ALLOWED) == []


def test_every_module_has_a_room_in_the_table(graph: Graph) -> None:
    homeless = [
        module
        for module in graph.files
        if room_of(module, ALLOWED) in ("", "tony_core") and module != "tony_core"
    ]
    assert homeless == []


@pytest.mark.parametrize(
    ("side", "version"),
    [(EXECUTOR_SIDE, (3, 8)), (MASTER_SIDE, (3, 9))],
    ids=["executor", "master"],
)
class TestTheNodesPython:
    def test_only_the_standard_library(
        self, graph: Graph, side: Tuple[str, ...], version: Tuple[int, int]
    ) -> None:
        assert foreign(graph, graph.closure(graph.modules(*side))) == []

    def test_the_syntax_is_old_enough(
        self, graph: Graph, side: Tuple[str, ...], version: Tuple[int, int]
    ) -> None:
        assert unreadable(graph, graph.closure(graph.modules(*side)), version) == []

    @pytest.mark.timeout(300)  # vermin reads every module, which takes a busy machine a while
    def test_what_is_used_of_the_library_is_old_enough(
        self, graph: Graph, side: Tuple[str, ...], version: Tuple[int, int]
    ) -> None:
        files = [str(graph.files[module]) for module in graph.closure(graph.modules(*side))]
        vermin = [sys.executable, "-c", "import vermin; vermin.main()"]
        options = ["--violations", "--no-tips", f"-t={version[0]}.{version[1]}-"]
        done = subprocess.run([*vermin, *options, *files], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_program_may_import_runs_on_any_python() -> None:
    """It is on the path of the user's own Python, whichever that is, and of nothing else."""
    folder = CHECKOUT / "program"
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))
        names = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
            for name in (
                [node.module or "."]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
        }
        beside = {each.stem for each in folder.iterdir()}
        assert names <= set(sys.stdlib_module_names) | beside, path


@pytest.mark.parametrize("process", NOT_LOADED)
def test_a_process_loads_no_more_than_it_needs(graph: Graph, process: str, tmp_path: Path) -> None:
    statements, dear = NOT_LOADED[process]
    assert {name for name in dear.split() if graph.ours(name)} <= set(graph.files)
    code = (
        "import sys; before = set(sys.modules)\nfrom tony_core.cli.main import main\n"
        f"{statements}\nprint('loaded:', *set(sys.modules) - before)"
    )
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TONY_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    loaded = done.stdout.rpartition("loaded:")[2].split()
    assert loaded, done.stdout + done.stderr
    assert sorted(set(dear.split()) & set(loaded)) == []


def test_whatever_else_is_imported_is_declared(graph: Graph) -> None:
    undeclared = [
        words
        for package in ("tony_core", "tony_executor", "tony_airflow", "tony_azkaban")
        for module in graph.modules(package)
        for found, words in [(found, str(found)) for found in graph.imports(module)]
        if words in foreign(graph, [module])
        and found.imported.partition(".")[0]
        not in THIRD_PARTY.get(room_of(module, THIRD_PARTY), set())
    ]
    assert undeclared == []


def test_modules_are_named_by_their_role(graph: Graph) -> None:
    assert [name for name in graph.files if VAGUE & set(name.split("."))] == []


def test_no_module_grows_too_long(graph: Graph) -> None:
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines())
        for name, path in graph.files.items()
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_the_folder_named_airflow_is_no_package() -> None:
    plugins = CHECKOUT / "plugins"
    assert [str(path) for path in plugins.glob("__init__.py")] == []
    assert [str(path) for path in plugins.glob("*/__init__.py")] == []


class TestTheCheckerItself:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Graph:
        files: Dict[str, str] = {
            "__init__.py": "",
            "low/__init__.py": "",
            "low/plain.py": "import json\nfrom pkg.high.roof import tile\n",
            "low/relative.py": "from ..high import roof\n",
            "low/late.py": "def f():\n    import pkg.high\n",
            "low/fine.py": "from pkg.low import plain\nfrom . import late\n",
            "high/__init__.py": "",
            "high/roof.py": "import yaml\nfrom pkg.low.fine import x\nfrom pkg import low\n",
            "high/modern.py": "match 1:\n    case 1:\n        pass\n",
        }
        for name, text in files.items():
            path = tmp_path / "pkg" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Graph({"pkg": tmp_path / "pkg"})

    def test_an_import_upwards_is_caught_in_every_form(self, made: Graph) -> None:
        wrong = crossings(made, {"pkg": (), "pkg.low": (), "pkg.high": ("pkg.low",)})
        assert wrong == [
            "pkg.low.late, line 2, imports pkg.high: pkg.low may import nothing",
            "pkg.low.plain, line 2, imports pkg.high.roof.tile: pkg.low may import nothing",
            "pkg.low.relative, line 1, imports pkg.high.roof: pkg.low may import nothing",
        ]

    def test_what_the_table_allows_is_let_through(self, made: Graph) -> None:
        both = {"pkg": (), "pkg.low": ("pkg.high",), "pkg.high": ("pkg.low",)}
        assert crossings(made, both) == []

    def test_the_closure_follows_imports_and_parents(self, made: Graph) -> None:
        assert made.closure(["pkg.low.relative"]) == [
            "pkg",
            "pkg.high",
            "pkg.high.roof",
            "pkg.low",
            "pkg.low.fine",
            "pkg.low.late",
            "pkg.low.plain",
            "pkg.low.relative",
        ]

    def test_the_closure_knows_what_is_for_type_checkers_and_what_is_lazy(
        self, tmp_path: Path
    ) -> None:
        package = tmp_path / "pkg"
        package.mkdir()
        (package / "__init__.py").write_text(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from pkg.heavy import Heavy\n    from pkg.light import Light\n"
        )
        (package / "heavy.py").write_text("import yaml\n")
        (package / "light.py").write_text("")
        (package / "user.py").write_text("from pkg import Light\n")
        made = Graph({"pkg": package})
        assert made.closure(["pkg"]) == ["pkg"]
        assert made.closure(["pkg.user"]) == ["pkg", "pkg.light", "pkg.user"]

    def test_what_is_not_the_standard_librarys_is_caught(self, made: Graph) -> None:
        closure = made.closure(["pkg.low.relative"])
        assert foreign(made, closure) == ["pkg.high.roof, line 1, imports yaml"]

    def test_newer_syntax_is_caught(self, made: Graph) -> None:
        (wrong,) = unreadable(made, ["pkg.high.modern", "pkg.high.roof"], (3, 9))
        assert wrong.startswith("pkg.high.modern, line ")

    def test_names_are_compared_by_their_parts(self) -> None:
        assert within("a.b", "a")
        assert not within("ab", "a")
        assert room_of("a.b.c", ["a", "a.b"]) == "a.b"


def test_no_modules_import_each_other(graph: Graph) -> None:
    assert graph.circles() == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    for name, source in {
        "a": "import pkg.b",
        "b": "import pkg.c",
        "c": "import pkg.a",
        "d": "import pkg.a",
    }.items():
        (package / f"{name}.py").write_text(source)
    assert Graph({"pkg": package}).circles() == [
        ["pkg.a", "pkg.b"],
        ["pkg.b", "pkg.c"],
        ["pkg.a", "pkg.c"],
    ]
