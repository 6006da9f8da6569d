"""This machine's own file system."""

from __future__ import annotations

import os
import shutil
import stat as modes
from functools import lru_cache
from typing import BinaryIO, Callable, List

from tony_core.files.durable import replacing
from tony_core.files.location import local_path
from tony_core.files.port import FileSystem, Stat


def user_name(uid: int) -> str:
    """The name of a user; the number where this machine knows none now."""
    try:
        return _known_user(uid)
    except (KeyError, OverflowError):
        return str(uid)  # not kept: its directory service may only just not answer


@lru_cache(maxsize=4096)
def _known_user(uid: int) -> str:
    import pwd

    return pwd.getpwuid(uid).pw_name


@lru_cache(maxsize=4096)
def group_name(gid: int) -> str:
    """The name of a group; the number where this machine knows none."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


def stat_of(location: str, found: os.stat_result) -> Stat:
    """What the kernel's answer says of a location."""
    return Stat(
        location,
        modes.S_ISDIR(found.st_mode),
        found.st_size,
        found.st_mtime_ns // 1_000_000,
        modes.S_IMODE(found.st_mode),
        user_name(found.st_uid),
        group_name(found.st_gid),
        found.st_blocks * 512,
    )


class LocalFileSystem(FileSystem):
    """Plain paths and ``file:`` URLs."""

    scheme = "file"

    def stat(self, location: str) -> Stat:
        return stat_of(location, os.stat(local_path(location)))

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        stream = open(local_path(location), "rb")  # noqa: SIM115 - the caller closes it
        try:
            stream.seek(offset)
        except BaseException:
            stream.close()
            raise
        return stream

    def list(self, location: str) -> List[Stat]:
        path = local_path(location)
        found = []
        for name in sorted(os.listdir(path)):
            try:
                found.append(self.stat(os.path.join(path, name)))
            except FileNotFoundError:
                continue  # went away meanwhile, or a link that leads nowhere
        return found

    def write(
        self, location: str, produce: Callable[[BinaryIO], object], mode: int = 0o644
    ) -> None:
        """Beside its target, flushed, then renamed over it; the mode is right from the start."""
        with replacing(local_path(location), mode) as stream:
            produce(stream)

    def mkdir(self, location: str, mode: int = 0o755) -> None:
        path = local_path(location)
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(above):
            self.mkdir(above, mode & 0o777)
        try:
            os.mkdir(path, mode & 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return
        os.chmod(path, mode)  # whatever the umask

    def rename(self, source: str, target: str) -> None:
        old, new = local_path(source), local_path(target)
        if os.path.isdir(old) and os.path.lexists(new):
            # rename(2) would silently replace an empty folder.
            raise FileExistsError(17, "there already", new)
        os.replace(old, new)

    def delete(self, location: str) -> bool:
        path = local_path(location)
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def chmod(self, location: str, mode: int) -> None:
        os.chmod(local_path(location), mode)
