from __future__ import annotations

import os
import socket

import pytest

from tests.executor.standin import free_span
from tests.second_user import as_stranger, needs_root, start_stranger
from tony_core.protocol import socket_owners
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
            assert module.list_listeners(port) == [socket_owners.Owner(os.geteuid(), inode)]
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
