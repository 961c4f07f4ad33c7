"""Container logs are complete across restarts of containers and connections, and streams across pauses."""

import asyncio
import fcntl
import ssl
import struct
import termios
from contextlib import aclosing, asynccontextmanager

import psutil
import pytest
from certificates import Authority
from kube_server import Fault
from kube_world import NAME, PODS, SetCredentials, opened, options, pod

from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.credentials import ClusterAccess
from backend_plugin.shell.cluster import ClusterUnavailable, LogLine, LogRequest, ObjectName

REPLICA = f"{NAME}-master-0"
LINES = [f"2026-01-01T00:00:0{second}.000000000Z line {second}" for second in range(4)]
TOLD = [LogLine(time=line.partition(" ")[0], text=line.partition(" ")[2]) for line in LINES]


@pytest.fixture
def server(server):
    server.apply(PODS, pod(phase="Succeeded"))
    return server


def lines_of(server, tmp_path, uid=None, **fields):
    async def all_of_it():
        async with opened(options(server, tmp_path, request_timeout=1.0)) as cluster:
            return [line async for line in read_log(cluster, uid, **fields)]

    return asyncio.run(all_of_it())


def read_log(cluster, uid=None, **fields):
    name = ObjectName(namespace="ns", name=REPLICA, uid=uid)
    return cluster.read_log(name, LogRequest(container="pytorch", **fields))


async def follow_until(cluster, last):
    """Follow the log, and return its lines until the last one, at which the connection is closed."""
    found = []
    async with aclosing(read_log(cluster, follow=True)) as lines:
        async for line in lines:
            found.append(line)
            if line.text == last:
                break
    return found


def list_log_queries(server):
    return [each.partition("?")[2] for each in server.requests if "/log" in each]


def test_last_lines_of_the_previous_container_run_are_read(server, tmp_path):
    server.logs[REPLICA] = [LINES]
    assert lines_of(server, tmp_path, tail=2, previous=True) == TOLD[2:]
    assert list_log_queries(server) == ["container=pytorch&timestamps=true&previous=true&tailLines=2"]


def test_blank_line_is_kept_and_long_line_is_truncated(server, tmp_path):
    server.logs[REPLICA] = [[LINES[0][:31], LINES[1] + "x" * (1 << 20), LINES[2]]]
    blank, long, last = lines_of(server, tmp_path)
    assert (blank.text, last) == ("", TOLD[2])
    assert long.text.endswith("x [786469 bytes more]")


def test_missing_replaced_or_unscheduled_pod_has_no_log_lines(server, tmp_path):
    assert (lines_of(server, tmp_path), lines_of(server, tmp_path, uid="another")) == ([], [])
    server.apply(PODS, pod(nodeName=""))
    assert lines_of(server, tmp_path) == []
    server.objects.now.clear()
    assert lines_of(server, tmp_path, follow=True) == []


async def test_follow_continues_over_restarts_until_the_container_has_terminated(server, cluster):
    server.apply(PODS, pod(phase="Running", restartPolicy="OnFailure"))
    server.logs[REPLICA] = [LINES[:2], LINES[1:3], LINES[2:]]
    found = []
    async for line in read_log(cluster, follow=True):
        found.append(line)
        if line == TOLD[2]:
            server.apply(PODS, pod(phase="Succeeded"))
    assert found == TOLD
    assert "follow=true" in list_log_queries(server)[0]
    assert "sinceTime=2026-01-01T00:00:01Z" in list_log_queries(server)[1]
    assert "follow" not in list_log_queries(server)[2]


async def test_follow_continues_after_a_connection_reset(server, cluster):
    server.apply(PODS, pod(phase="Running"))
    server.logs[REPLICA] = [[*LINES[:2], "<reset>"], LINES]
    assert await follow_until(cluster, TOLD[3].text) == TOLD


async def test_timestamps_may_have_a_zone_offset_and_go_backwards(server, cluster):
    texts = {"before": 5, "put back": 4, "at the same time": 4, "after": 6}
    zoned = [f"2026-01-01T02:00:0{second}.000000000+02:00 {text}" for text, second in texts.items()]
    server.apply(PODS, pod(phase="Running"))
    server.logs[REPLICA] = [zoned[:3], zoned[2:]]
    assert [line.text for line in await follow_until(cluster, "after")] == [*texts]
    assert "sinceTime=2026-01-01T00:00:04Z" in list_log_queries(server)[1]


def test_follow_continues_when_a_node_responds_again(server, tmp_path):
    server.logs[REPLICA] = [LINES]
    server.faults.append(Fault(path="/log", times=2, code=502, body=b"dial tcp 10.0.0.7:10250"))
    assert lines_of(server, tmp_path, follow=True) == TOLD


def test_follow_of_a_pod_without_a_log_is_empty_after_an_error(server, tmp_path):
    server.faults.append(Fault(path="/log", code=502, body=b"dial tcp 10.0.0.7:10250"))
    assert lines_of(server, tmp_path, follow=True) == []


def test_interrupted_log_raises_an_error(server, tmp_path):
    server.logs[REPLICA] = [[*LINES[:2], "<reset>"]]
    with pytest.raises(ClusterUnavailable):
        lines_of(server, tmp_path)


def test_missing_log_permission_is_reported_with_its_rule(server, tmp_path):
    server.forbidden.add("get pods/log")
    with pytest.raises(ClusterUnavailable, match=r"resources: .pods/log., verbs: .get."):
        lines_of(server, tmp_path)


# ---- a paused stream leaves data in the socket, and later delivers all of it


MESSAGE = b"x" * 1_000


class StreamServer:
    def __init__(self):
        self.done = asyncio.Event()

    async def respond(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.writer = writer
        self.send(b"first")
        await self.done.wait()
        writer.transport.abort()

    def send(self, chunk):
        self.writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))


@pytest.fixture(params=["tls", "plain"])
def tls(request, tmp_path):
    """Return the TLS context of a server, and the file of its authority; None and None without TLS."""
    if request.param == "plain":
        return None, None
    files = Authority().issue_server(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context, str(tmp_path / "ca.crt")


@asynccontextmanager
async def streaming(tls):
    """Yield a server and the stream of its response, from which the first chunk has been read."""
    context, authority = tls
    server = StreamServer()
    listening = await asyncio.start_server(server.respond, "127.0.0.1", 0, ssl=context)
    url = f"{'https' if context else 'http'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    connection = Connection(SetCredentials(ClusterAccess(server=url, ca_file=authority)))
    await connection.open()
    try:
        async with ApiClient(connection, 5).open_stream(ApiRequest(path="/"), 5) as stream:
            assert await anext(stream.pieces) == b"first"
            yield server, stream
    finally:
        server.done.set()
        await connection.close()
        listening.close()


def count_unread(server):
    """Return the number of received bytes that the client has not read from its socket."""
    port = server.writer.get_extra_info("peername")[1]
    connections = psutil.Process().net_connections()
    (own,) = [each.fd for each in connections if each.laddr and each.laddr.port == port]
    return struct.unpack("i", fcntl.ioctl(own, termios.FIONREAD, bytes(4)))[0]


async def test_data_stay_in_the_socket_during_a_pause(tls):
    async with streaming(tls) as (server, stream):
        pause = asyncio.create_task(stream.pause(2))
        for _ in range(20):
            await asyncio.sleep(0.005)
            server.send(MESSAGE)
        await asyncio.sleep(0.02)
        assert count_unread(server) >= 19 * len(MESSAGE)
        await pause
        assert await anext(stream.pieces) == 20 * MESSAGE


async def test_a_stream_continues_after_a_pause_with_more_data_than_buffers_hold(tls):
    async with streaming(tls) as (server, stream):
        for _ in range(5_000):
            server.send(MESSAGE)
        found = b""
        while len(found) < 5_000 * len(MESSAGE):
            found += await asyncio.wait_for(anext(stream.pieces), 10)
            await stream.pause(0.01)
        assert found == 5_000 * MESSAGE


async def test_a_pause_after_the_end_of_the_response_returns(tls):
    async with streaming(tls) as (server, stream):
        server.writer.write(b"0\r\n\r\n")
        assert [piece async for piece in stream.pieces] == []
        await stream.pause(0)
