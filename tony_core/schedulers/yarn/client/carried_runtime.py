"""TonY's own code as the credentials of a master carry it; when they do: :mod:`next_master`."""

from __future__ import annotations

from typing import Callable, Dict, Optional, Sequence

from tony_core.files.artifact import Artifact, Use, find
from tony_core.files.location import masked
from tony_core.files.port import FileSystem
from tony_core.schedulers.port import SchedulerError

SECRET = "tony.runtime"  # noqa: S105 (its name)
"""The runtime in a master's credentials: :data:`MARK`, then a zip compressed as a whole."""

MARK = b"--tony-runtime-of-a-master--"

_PACKS_TO = 0.28  # of the size of its sources: a little more than it is

UNPACK = (
    "import io,os,sys,zipfile,zlib;"
    'd=open(os.environ["HADOOP_TOKEN_FILE_LOCATION"],"rb").read();'
    f'd=zlib.decompressobj().decompress(d[d.rindex(b"{MARK.decode()}")+{len(MARK)}:]);'
    "zipfile.ZipFile(io.BytesIO(d)).extractall(sys.argv[1]);"
    'os.execv(sys.executable,[sys.executable,"-I","-S"]+sys.argv[1:])'
)
"""Unpacks the runtime out of the container's credentials into the folder that its first argument
names, and starts it with all arguments. It needs no reader of credentials: the runtime's end is
that of its compression, and it is behind the last mark. In both forms of the file secrets, which
are the owner's alone, follow the tokens, whose identifiers are their issuers': a NameNode that the
job names might write a mark, too."""


class PackedRuntimes:
    """The runtimes of a client's jobs as credentials carry them; each is read once.

    :param open_files: the file system of a location.
    """

    def __init__(self, open_files: Callable[[str], FileSystem]) -> None:
        self._open_files = open_files
        self._packed: Dict[str, Optional[bytes]] = {}  # by location

    def size(self, artifacts: Sequence[Artifact]) -> Optional[int]:
        """The packed size of a job's runtime, at most; None if it cannot be packed."""
        runtime = find(tuple(artifacts), Use.RUNTIME)
        if runtime is not None and not runtime.mtime_ms:  # it is not staged yet
            return int(runtime.size * _PACKS_TO)
        packed = self._pack(runtime)
        return None if packed is None else len(packed)

    def secrets(self, artifacts: Sequence[Artifact]) -> Dict[str, bytes]:
        """The secret of the master's credentials with the runtime."""
        runtime = find(tuple(artifacts), Use.RUNTIME)
        packed = self._pack(runtime)
        return {} if packed is None else {SECRET: packed}

    def _pack(self, runtime: Optional[Artifact]) -> Optional[bytes]:
        if runtime is None:
            return None
        location = runtime.uri
        if location not in self._packed:
            try:
                self._packed[location] = pack_runtime(self._open_files(location), location)
            except OSError as error:
                raise SchedulerError(f"{masked(location)} cannot be read: {error}") from error
        return self._packed[location]


def pack_runtime(files: FileSystem, location: str) -> Optional[bytes]:
    """A staged runtime as it travels in credentials, without bytecode; None for other archives."""
    import io  # these four only for a job that outlives its tokens
    import tarfile
    import zipfile
    import zlib

    packed = io.BytesIO()
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(files.get(location))) as source,
            zipfile.ZipFile(packed, "w") as target,
        ):
            for member in source:
                data = source.extractfile(member) if member.isfile() else None
                if data is not None and not member.name.endswith(".pyc"):
                    # A time of its own would make other bytes of the same code.
                    target.writestr(zipfile.ZipInfo(member.name), data.read())
    except tarfile.TarError:
        return None
    return MARK + zlib.compress(packed.getvalue(), 9)
