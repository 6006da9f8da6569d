"""Ports that are held for programs, and which other users cannot take."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Callable

import pytest

from tests.executor.standin import Executor, Master, free_span
from tests.second_user import as_stranger, needs_root, start_stranger
from tony_core.protocol import socket_owners
from tony_core.protocol.messages import Ended, Prepare, Register, Start
from tony_executor.network import ports as module
from tony_executor.network.ports import NoPort, Ports

# Every way to bind beside: (family, address, SO_REUSEADDR, SO_REUSEPORT) that worked.
BIND = """
result = []
for family, address in ((2, ""), (2, "127.0.0.1"), (10, "::"), (10, "::1")):
    for options in ([], [2], [15], [2, 15]):
        try:
            sock = socket.socket(family)
        except OSError:
            continue
        for option in options:
            sock.setsockopt(1, option, 1)
        try:
            sock.bind((address, argument))
            sock.listen()
            result.append([family, address, options])
        except OSError:
            pass
        sock.close()
"""


LISTEN = """
sock = socket.socket()
sock.setsockopt(1, 2, 1)
sock.bind(("", argument))
sock.listen()
print("listening")
time.sleep(60)
"""


@pytest.fixture
def ports():
    made = Ports()
    yield made
    made.close()


def bind(port: int, *options: int, address: str = "") -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        for option in options:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind((address, port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


class TestHeld:
    @needs_root
    def test_no_other_user_listens_at_a_held_port(self, ports):
        port = ports.hold(["main"])["main"]
        assert as_stranger(BIND, port) == []

    @needs_root
    @pytest.mark.parametrize(("address", "families"), [("::", []), ("", [2])])
    def test_no_other_user_listens_where_a_program_does(self, ports, address, families):
        port = ports.hold(["main"])["main"]
        ports.share(["main"])
        with bind(port, socket.SO_REUSEADDR, address=address):
            open_to_others = {family for family, _, _ in as_stranger(BIND, port)}
        assert not open_to_others & set(families or [2, 10])

    @needs_root
    def test_a_port_that_the_program_has_left_is_closed_to_others_again(self, ports):
        port = ports.hold(["main"])["main"]
        ports.share(["main"])
        assert as_stranger(BIND, port), "it is shared with any user: documented, not wanted"
        assert ports.hold(["main"], same=True) == {"main": port}
        assert as_stranger(BIND, port) == []

    @needs_root
    def test_a_released_port_is_closed_to_others_when_it_is_held_again(self, ports):
        port = ports.hold(["main"])["main"]
        ports.release(["main"])
        assert ports.hold(["main"], same=True) == {"main": port}
        assert as_stranger(BIND, port) == []

    @needs_root
    @pytest.mark.parametrize("how", ["share", "release"])
    def test_a_port_that_another_user_took_is_not_held_again(self, ports, how):
        port = ports.hold(["main"])["main"]
        getattr(ports, how)(["main"])
        with start_stranger(LISTEN, port) as stranger:
            assert stranger.stdout.readline() == "listening\n"
            assert ports.is_lost("main", os.getpid())
            with pytest.raises(NoPort, match="which peers know") as caught:
                ports.hold(["main"], same=True)
            stranger.kill()
        assert caught.value.cause == "address-in-use"

    @pytest.mark.parametrize("address", ["", "127.0.0.1", "::", "::1"])
    @pytest.mark.parametrize("options", [[2], [15], [2, 15]])
    def test_a_program_of_ours_binds_a_shared_port(self, ports, address, options):
        port = ports.hold(["main"])["main"]
        ports.share(["main"])
        with bind(port, *options, address=address):
            assert not ports.is_lost("main", os.getpid())

    @pytest.mark.parametrize("name", ["", "127.0.0.1", "::1"])
    def test_a_port_at_which_something_listens_is_not_drawn(self, ports, name):
        with bind(0, address=name) as sock:
            port = sock.getsockname()[1]
            with pytest.raises(NoPort):
                ports.hold(["main"], [port, port])

    def test_a_port_with_connections_that_have_ended_is_free(self, ports):
        """Who ends a connection first keeps its port for a minute (TIME_WAIT)."""
        with bind(0, socket.SO_REUSEADDR) as served:
            port = served.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as caller:
                served.accept()[0].close()
                assert caller.recv(1) == b""
        assert ports.hold(["main"], [port, port]) == {"main": port}

    @pytest.mark.parametrize("how", ["share", "release"])
    def test_two_tasks_never_get_one_port(self, ports, how):
        other = Ports()
        port = ports.hold(["main"], free_span(1))["main"]
        getattr(ports, how)(["main"])
        try:
            with pytest.raises(NoPort, match="1 held for tasks"):
                other.hold(["main"], [port, port])
        finally:
            other.close()

    def test_a_port_of_another_number(self, ports):
        before = ports.hold(["tensorboard", "main"])
        assert ports.renew("tensorboard") != before["tensorboard"]
        assert ports.numbers["main"] == before["main"]


class TestRange:
    @pytest.mark.parametrize(
        ("ephemeral", "span"),
        [
            ("32768\t60999", (10000, 32767)),
            ("1024 60999", (61000, 65535)),
            ("10240 65535", (1024, 10239)),
            ("1024 65535", (1024, 65535)),
            ("1024 65000", (1024, 65535)),
            ("nonsense", (10000, 32767)),
        ],
    )
    def test_outside_the_ephemeral_range_where_there_is_room(self, tmp_path, ephemeral, span):
        (tmp_path / "ip_local_port_range").write_text(ephemeral)
        assert module.outside_ephemeral(str(tmp_path)) == span

    def test_ports_that_only_root_may_bind_are_left_out(self, tmp_path):
        (tmp_path / "ip_local_port_range").write_text("12000 65535")
        (tmp_path / "ip_unprivileged_port_start").write_text("4000")
        assert module.outside_ephemeral(str(tmp_path)) == (10000, 11999)
        (tmp_path / "ip_local_port_range").write_text("9000 65535")
        assert module.outside_ephemeral(str(tmp_path)) == (4000, 8999)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("", []), ("8080\n", [8080]), ("20,30-32", [20, 30, 31, 32]), ("a-b", []), ("5-1", [])],
    )
    def test_ports_that_the_system_reserves(self, tmp_path, text, expected):
        (tmp_path / "ip_local_reserved_ports").write_text(text)
        spans = module.reserved(str(tmp_path))
        assert [p for p in range(10000) if any(a <= p <= b for a, b in spans)] == expected


class TestSockets:
    def test_the_listeners_at_a_port(self):
        with bind(0) as sock, bind(0, address="::1") as other:
            inode = os.fstat(sock.fileno()).st_ino
            port = sock.getsockname()[1]
            assert module.list_listeners(port) == [socket_owners.SocketOwner(os.geteuid(), inode)]
            assert module.are_open_in({inode}, [os.getpid()])
            assert not module.are_open_in({inode, 1}, [os.getpid()])
            assert not module.are_open_in({inode}, [1, 999999999])
            found = module.list_listeners(other.getsockname()[1])
            assert [owner.inode for owner in found] == [os.fstat(other.fileno()).st_ino]
        assert module.list_listeners(port) == []

    def test_by_the_tables_where_there_is_no_sock_diag(self, monkeypatch):
        monkeypatch.setattr(socket_owners, "_SOCK_DIAG", 31)
        self.test_the_listeners_at_a_port()
        monkeypatch.setattr(module, "_TABLES", ("/nowhere",))
        with pytest.raises(module.OwnersUnknown):
            module.list_listeners(1)


class TestPorts:
    def test_each_name_gets_its_own_below_the_ephemeral_range(
        self, master: Master, executor: Executor
    ) -> None:
        ready = master.prepare(ports=["main", "tensorboard", "third"])
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        assert len(set(ready.ports.values())) == 3
        assert all(1024 <= port < low for port in ready.ports.values())

    def test_the_range_that_is_given(self, master: Master, executor: Executor) -> None:
        span = free_span(2)
        ready = master.prepare(ports=["a", "b"], port_range=span)
        assert set(ready.ports.values()) == set(span)

    def test_a_range_that_is_full(self, master: Master, executor: Executor) -> None:
        master.expect(Register)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            master.send(Prepare("worker:0", 0, ["main"], port_range=[port, port]))
            ended = master.expect(Ended)
        assert ended.cause == "port-range-full"
        assert f"no port of tony.task.port-range ({port}-{port}) is free" in ended.message
        assert "0 held for tasks of TonY, 1 in use otherwise" in ended.message

    def test_a_range_that_is_full_of_our_own(
        self, master: Master, launch: Callable[..., Executor]
    ) -> None:
        other = Master()
        try:
            for number, each in enumerate((master, other)):
                launch(master=each.address, name=f"container_{number}")
            span = free_span(2)
            master.prepare(ports=["a", "b"], port_range=span)
            other.expect(Register)
            other.send(Prepare("worker:1", 0, ["main"], port_range=span))
            ended = other.expect(Ended)
        finally:
            other.close()
        assert ended.cause == "port-range-full"
        assert "2 held for tasks of TonY, 0 in use otherwise" in ended.message

    def test_a_range_that_is_too_small_for_one_task(
        self, master: Master, executor: Executor
    ) -> None:
        master.expect(Register)
        master.send(Prepare("worker:0", 0, ["a", "b"], port_range=free_span(1)))
        ended = master.expect(Ended)
        assert ended.cause == "port-range-full"
        assert "the task needs 2, and held 1 of them" in ended.message

    def test_two_executors_never_get_the_same(
        self, master: Master, launch: Callable[..., Executor], tmp_path: Path
    ) -> None:
        other = Master()
        try:
            for number, each in enumerate((master, other)):
                launch(master=each.address, name=f"container_{number}")
            first, last = span = free_span(20)
            names = [str(number) for number in range(10)]
            mine = master.prepare(ports=names, port_range=span).ports
            others = other.prepare(ports=names, port_range=span).ports
            assert set(mine.values()) | set(others.values()) == set(range(first, last + 1))
        finally:
            other.close()

    @pytest.mark.parametrize("options", [[2], [15], [2, 15]], ids=["addr", "port", "both"])
    @pytest.mark.parametrize("address", ["", "127.0.0.1", "::"])
    def test_a_program_binds_a_port_that_is_held(
        self, master: Master, executor: Executor, options: list, address: str
    ) -> None:
        port = master.prepare().ports["main"]
        master.start("sleep 60")
        family = socket.AF_INET6 if address == "::" else socket.AF_INET
        try:
            sock = socket.socket(family)
        except OSError:
            pytest.skip("no IPv6 here")
        with sock:
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind((address, port))
            sock.listen()

    def test_no_other_process_takes_a_held_port(self, master: Master, executor: Executor) -> None:
        port = master.prepare().ports["main"]
        with socket.socket() as sock, pytest.raises(OSError, match="in use"):
            sock.bind(("", port))

    def test_one_that_cannot_be_shared_is_released(
        self, master: Master, executor: Executor
    ) -> None:
        ready = master.prepare(ports=["main", "kept"])
        for name, works in (("main", True), ("kept", False)):
            code = f"import socket; socket.socket().bind(('', {ready.ports[name]}))"
            script = f'python3 -c "{code}" 2>/dev/null && echo {name}-{works}'
            executor.work.joinpath(f"{name}.sh").write_text(script)
        master.send(
            Start(
                0,
                f"bash {executor.work}/main.sh; bash {executor.work}/kept.sh; true",
                {},
                release_ports=["main"],
            )
        )
        master.expect(Ended)
        assert executor.log("stdout") == "main-True\n"


def test_ports_are_held_once_and_given_back() -> None:
    first, second = Ports(), Ports()
    span = free_span(2)
    try:
        assert set(first.hold(["a", "b"], span).values()) == set(span)
        with pytest.raises(
            NoPort, match=rf"tony\.task\.port-range \({span[0]}-{span[1]}\) is free"
        ):
            second.hold(["c"], span)
        assert first.list_taken() == []
        first.close()
        assert second.hold(["c"], span)["c"] in span
    finally:
        first.close()
        second.close()


def test_kept_ports_are_not_taken_again() -> None:
    ports = Ports()
    assert ports.hold(["tensorboard"], None, {"tensorboard": 6006}) == {"tensorboard": 6006}
    ports.close()
