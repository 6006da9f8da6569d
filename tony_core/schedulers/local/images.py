"""``tony.docker.*`` on this machine: a role's containers in an image, by docker or podman.

Theory of operation
===================

The shim runs ``docker run`` (or ``podman run``) in the foreground as it would run the executor,
so exit code, output, log folder and stop are those of any container. What is different, why:

* *network, pids, ipc and host name are the machine's*: the cluster spec's addresses hold, the
  shim measures and ends what is inside, an executor can ask its shim for the next master, and
  ``/dev/shm`` is as large as the machine's. An init of the engine's would do nothing there: the
  executor is the subreaper of all that the program leaves behind;
* *the same paths*: the application's folder, the store and what else was staged are mounted
  where they are, so links and messages mean the same inside and outside;
* *the same user*: files that are written belong to who submitted the job; no new privileges;
* *the environment is the image's*: of the shell's only language, time zone and proxies.
  What a job gives comes in a file (0600), never on a command line;
* *limits*: the engine gets the memory limit too, for what grows faster than the shim looks;
  cores only where ``tony.local.vcores`` counts them; GPUs by device.

Which engine it is, is found out once, by the client, with the images: an image that is not
here is fetched before anything starts, and one without our Python is refused.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, local_path
from tony_core.job.spec import Docker, Job, Role
from tony_core.schedulers.local import engine
from tony_core.schedulers.local.home import AppFolder, path_of_uri
from tony_core.schedulers.port import SchedulerError

if TYPE_CHECKING:
    from tony_core.schedulers.container_pool import Container, Launch

ENGINES = ("docker", "podman")
ANSWER_S = 20.0
PULL_S = 3600.0
PROBE_S = 120.0
OLDEST = (3, 8)
LONGEST_LINE = 60000  # of an environment file; both engines refuse more than 64 KB

_FOR_ENGINE = """
    PATH HOME USER LOGNAME TMPDIR LANG XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME
    DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT DOCKER_CERT_PATH DOCKER_TLS_VERIFY
    CONTAINERS_CONF CONTAINERS_STORAGE_CONF CONTAINERS_REGISTRIES_CONF REGISTRY_AUTH_FILE
    DBUS_SESSION_BUS_ADDRESS http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
""".split()
_FROM_SHELL = """
    USER LOGNAME LANG LANGUAGE TZ
    http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
""".split()
_PROBE = (
    "import sys; print('tony-python', *sys.version_info[:2]); sys.stdout.flush();"
    " open(sys.argv[1], 'x').close()"
)


class Engine(NamedTuple):
    """The program that runs images here."""

    program: str
    podman: bool  # whatever its name
    env: Mapping[str, str]

    @classmethod
    def find(cls, env: Mapping[str, str]) -> Engine:
        """The first on the PATH that answers; else why there is none."""
        why: List[str] = []
        for name in ENGINES:
            program = shutil.which(name, path=env.get("PATH"))
            if program is None:
                continue
            own = {word: env[word] for word in _FOR_ENGINE if word in env}
            code, output = engine.run([program, "version"], own, ANSWER_S)
            if code == 0:
                return cls(program, "podman" in output.lower(), own)
            why.append(f"{program} version failed ({code}): {_reason(output)}")
        if why:
            raise SchedulerError(
                "; ".join(why) + " (start its service, or get the right to use it)"
            )
        raise SchedulerError("neither docker nor podman is on the PATH; install one of them")

    def run(self, *words: str, limit_s: float = ANSWER_S) -> Tuple[int, str]:
        """Run one of its commands; returns the exit code and the output."""
        return engine.run([self.program, *words], self.env, limit_s)


class Images(NamedTuple):
    """The image settings of an application, kept in ``app.json``."""

    engine: Engine
    python: str  # as the image calls it
    roles: Mapping[str, Docker]
    folders: Tuple[str, ...] = ()  # of the job's, to be written where they are
    cores: bool = False  # whether tony.local.vcores limits them

    @classmethod
    def of(cls, job: Job, env: Mapping[str, str]) -> Optional[Images]:
        """The images of a job; None where no role has one."""
        roles = roles_in_images(job)
        if not roles:
            return None
        places = (job.program.checkpoint_dir, job.program.tensorboard_log_dir)
        folders = [local_path(place) for place in places if place and not is_remote(place)]
        cores = job.local.vcores is not None
        return cls(Engine.find(env), job.runtime.python, roles, tuple(folders), cores)

    def to_json(self) -> Dict[str, Any]:
        """Plain data."""
        return {
            "program": self.engine.program,
            "podman": self.engine.podman,
            "env": dict(self.engine.env),
            "python": self.python,
            "roles": {name: [of.image, list(of.mounts)] for name, of in self.roles.items()},
            "folders": list(self.folders),
            "cores": self.cores,
        }

    @classmethod
    def from_json(cls, data: Optional[Mapping[str, Any]]) -> Optional[Images]:
        """Read what :meth:`to_json` wrote."""
        if not data:
            return None
        return cls(
            Engine(data["program"], data["podman"], data["env"]),
            data["python"],
            {name: Docker(image, tuple(mounts)) for name, (image, mounts) in data["roles"].items()},
            tuple(data["folders"]),
            data["cores"],
        )

    # ------------------------------------------------------------------ before anything starts

    def prepare(self, root: str) -> None:
        """Fetch missing images, and check that our code can run in each; else raise one message.

        ``root``: $TONY_HOME, which is there. What is written there in an image has to be ours.
        """
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)
        for image in sorted({docker.image for docker in self.roles.values()}):
            if self.engine.run("image", "inspect", image)[0] != 0:
                code, output = self.engine.run("pull", image, limit_s=PULL_S)
                if code != 0:
                    raise SchedulerError(
                        f"there is no image {image} here, and {self.engine.program} pull failed"
                        f" ({code}): {_last(output)}"
                    )
            aside = tempfile.mkdtemp(prefix=".image-", dir=root)
            try:
                self._probe(image, aside)
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def _probe(self, image: str, aside: str) -> None:
        path = os.path.join(aside, "written")
        words = [*self._common(), "--rm", "--volume", f"{aside}:{aside}:rw"]
        words += ["--entrypoint", self.python, image, "-I", "-S", "-c", _PROBE, path]
        code, output = self.engine.run("run", *words, limit_s=PROBE_S)
        version = _version(output)
        if version >= OLDEST:
            why = _not_ours(path, code, output)
            if why:
                raise SchedulerError(
                    f"{self.engine.program} cannot be used: {why}. It maps users (rootless,"
                    " userns-remap), or runs on another machine; use podman, or a docker of this"
                    " machine that maps no users"
                )
            return
        if code == 0:
            why = f"its {self.python} is {'.'.join(map(str, version)) or 'none'}"
        elif code in (126, 127):
            why = f"it has no {self.python} ({_last(output)})"
        else:
            raise SchedulerError(
                f"{self.engine.program} cannot run the image {image} here ({code}): {_last(output)}"
            )
        raise SchedulerError(
            f"the image {image} cannot run a task: {why}; TonY's executor needs Python"
            f" {OLDEST[0]}.{OLDEST[1]} or newer in it (another name or path:"
            " tony.runtime.python)"
        )

    # ------------------------------------------------------------------ one container

    def has_image(self, role: str) -> bool:
        """Whether that role's containers run in an image."""
        return role in self.roles

    def environment(self, env: Mapping[str, str], launch: Launch, work: str) -> Dict[str, str]:
        """The variables that a container's environment has in its image."""
        inside = {
            name: value
            for name, value in env.items()
            if name in launch.env
            or name in _FROM_SHELL
            or name.startswith(("TONY_", "LC_", "CUDA_VISIBLE"))
        }
        inside.setdefault("HOME", work)
        if "TONY_SUCCESSOR" in inside:
            successor = json.loads(inside["TONY_SUCCESSOR"])
            inside["TONY_SUCCESSOR"] = json.dumps([self.python, *successor[1:]])
        if not inside.get("CUDA_VISIBLE_DEVICES"):
            # An engine whose usual runtime is nvidia's shows all GPUs where nothing is set.
            inside.setdefault("NVIDIA_VISIBLE_DEVICES", "void")
        return inside

    def command(
        self,
        app: AppFolder,
        container: Container,
        launch: Launch,
        long_names: Iterable[str] = (),
    ) -> List[str]:
        """Exactly what the shim runs; ``long_names``: variables that no file can hold."""
        folder = app.container(container.id)
        docker = self.roles[container.role]
        need = container.resources
        words = [self.engine.program, "run", *self._common()]
        words += ["--name", engine.container_name(container.id)]
        words += ["--label", f"tony-application={app.app_id}"]
        if need.memory_mb:
            limit = f"{need.memory_mb}m"
            words += ["--memory", limit, "--memory-swap", limit]
        if self.cores and need.vcores:
            words += ["--cpus", str(need.vcores)]
        words += self._gpus(container.gpu_ids)
        words += ["--workdir", folder.work, "--env-file", env_file(folder.path)]
        for name in long_names:
            words += ["--env", name]
        for path, mode in self._mounts(app, launch):
            words += ["--volume", f"{path}:{path}:{mode}"]
        for mount in docker.mounts:
            words += ["--volume", f"{mount}:rw" if mount.count(":") == 1 else mount]
        words += ["--entrypoint", self.python, docker.image]
        return [*words, *launch.argv[1:]]

    def example(self, app: AppFolder, role: Role, artifacts: Iterable[Artifact]) -> List[str]:
        """The same command for a first container of that role, for the dry run."""
        # The master's side of the port: a client that looks loads none of it.
        from tony_core.schedulers.container_pool import Container, Launch

        gpus = tuple(f"GPU-{number}" for number in range(role.resources.gpus))
        container = Container(f"{app.app_id}_CONTAINER", "", role.name, role.resources, gpus)
        argv = (self.python, "-I", "-S", "tony-runtime", "executor", "--master", "HOST:PORT")
        files = tuple(item for item in artifacts if item.wanted_by(role.name))
        return self.command(app, container, Launch(argv, {}, files))

    def _common(self) -> List[str]:
        words = ["--pull=never", "--network=host", "--pid=host", "--ipc=host", "--uts=host"]
        words += ["--security-opt=no-new-privileges", "--security-opt=label=disable"]
        words += ["--log-driver=none", "--stop-timeout=0", f"--user={os.getuid()}:{os.getgid()}"]
        if self.engine.podman:
            words += [f"--ulimit={limit}" for limit in _limits()]
        if self.engine.podman and os.getuid() != 0:
            words.append("--userns=keep-id")
        elif os.getuid() != 0:
            mine = sorted(set(os.getgroups()) - {os.getgid()})
            words += [f"--group-add={number}" for number in mine]
        return words

    def _gpus(self, ids: Tuple[str, ...]) -> List[str]:
        if not ids:
            return []
        if self.engine.podman:
            return [word for one in ids for word in ("--device", f"nvidia.com/gpu={one}")]
        return ["--gpus", '"device={}"'.format(",".join(ids))]

    def _mounts(self, app: AppFolder, launch: Launch) -> List[Tuple[str, str]]:
        store = os.path.join(app.home.root, "store")
        found = [(app.path, "rw"), (store, "ro")]
        for item in launch.artifacts:
            path = path_of_uri(item.uri)
            if path and not path.startswith((app.path + os.sep, store + os.sep)):
                found.append((path, "ro"))
        return found + [(path, "rw") for path in self.folders]


def roles_in_images(job: Job) -> Dict[str, Docker]:
    """The roles that run in an image, with its settings."""
    return {role.name: role.docker for role in job.roles if role.docker is not None}


def env_file(container_path: str) -> str:
    """Path of the file in which the engine finds a container's environment."""
    return os.path.join(container_path, "env")


def write_env(env: Mapping[str, str]) -> Tuple[bytes, List[str]]:
    """The environment file, and the variables that cannot stand in one: over several lines,
    or longer than an engine reads."""
    lines, rest = [], []
    for name, value in sorted(env.items()):
        if "\n" in value or "\r" in value or len(_bytes(value)) > LONGEST_LINE:
            rest.append(name)
        else:
            lines.append(f"{name}={value}\n")
    return _bytes("".join(lines)), rest


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def find_problems(job: Job, env: Mapping[str, str], root: str) -> List[str]:
    """Why the job's images can never run here; asks the engine, fetches nothing."""
    roles = roles_in_images(job)
    if job.master.docker is not None and job.master.preprocess:
        return [
            "tony.docker.am.image: the master of the embedded scheduler runs on this machine and"
            " in no image, so tony.am.command would not find what it expects; leave one out"
        ]
    if not roles:
        return []
    try:
        Engine.find(env)
    except SchedulerError as error:
        return [f"the job uses a container image ({', '.join(roles)}): {error}"]
    found = [
        f"{name}: {docker.image!r} is not the name of an image"
        for name, docker in roles.items()
        if docker.image.startswith("-") or len(docker.image.split()) != 1
    ]
    mounts = sorted({mount for docker in roles.values() for mount in docker.mounts})
    found += [
        f"tony.docker.containers.mount: there is no {mount.split(':')[0]} on this machine"
        for mount in mounts
        if not os.path.exists(mount.split(":")[0])
    ]
    if ":" in root:
        found.append(f"TONY_HOME is {root}: no engine can mount a path with a colon in it")
    return found


def _limits() -> List[str]:
    """This process's own; left to itself podman asks for more, which may be refused.

    More processes than there are pids are refused as well.
    """
    found = []
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        most = _pids() if name == "nproc" else 1 << 62
        pair = [min(limit, most) for limit in resource.getrlimit(number)]
        if resource.RLIM_INFINITY not in pair:
            found.append(f"{name}={pair[0]}:{pair[1]}")
    return found


def _pids() -> int:
    try:
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return 1 << 15


def _version(output: str) -> Tuple[int, ...]:
    """The version of the image's Python; empty if none ran."""
    _, found, version = output.partition("tony-python ")
    return tuple(int(part) for part in version.split()[:2]) if found else ()


def _not_ours(path: str, code: int, output: str) -> str:
    """Why a file is not as if it were written here, by who has made its folder."""
    if code != 0:
        return f"a container cannot write in a folder of yours ({output.splitlines()[-1]})"
    what = "what a container writes in a folder of yours"
    try:
        owner, mine = os.stat(path).st_uid, os.stat(os.path.dirname(path)).st_uid
    except FileNotFoundError:
        return f"{what} does not come here"
    return "" if owner == mine else f"{what} is user {owner}'s, not user {mine}'s"


def _reason(output: str) -> str:
    """The error in the output of ``version``, without its table of versions."""
    table = (" ", "\t", "Client:", "Server:")
    lines = [line for line in output.splitlines() if not line.startswith(table)]
    return _last("\n".join(lines) if any(line.strip() for line in lines) else output)


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return " ".join(lines[-3:])[-600:] or "no output"
