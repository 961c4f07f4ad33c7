"""Pods of real processes: their environment and status, and the end of all processes of a container."""

import asyncio
import shutil
import stat
from pathlib import Path

import pytest

from backend_plugin.embedded.options import RestartBackoff
from backend_plugin.embedded.shim import layout
from backend_plugin.shell.cluster import LogRequest
from e2e.embedded.running_pods import (
    get_terminated,
    is_alive,
    marked,
    node,
    pod,
    python,
    replica,
    shell,
    uid,
    waits,
)

DATA = {"name": "data", "emptyDir": {}}
AT = [{"name": "data", "mountPath": "/data"}]


async def test_containers_start_in_kubernetes_order(kubelet):
    def says(name, then="", **fields):
        return shell(f"echo {name} >> /data/order; {then}", name, volumeMounts=AT, **fields)

    stops = "trap 'echo stopped >> /data/order; exit' TERM; while :; do sleep 0.01; done"
    of = pod(
        says("app", "sleep 0.1; echo end >> /data/order"),
        initContainers=[
            says("first", "sleep 0.05"),
            says("sidecar", stops, restartPolicy="Always"),
            says("last"),
        ],
        volumes=[DATA],
    )
    status = await kubelet.ran(of)
    order = (kubelet.root / uid(of) / "volumes/data/order").read_text().split()
    assert (status["phase"], order[0], order[-3:]) == ("Succeeded", "first", ["app", "end", "stopped"])
    assert sorted(order[1:3]) == ["last", "sidecar"]
    phases = [each["phase"] for each in kubelet.reported.statuses[uid(of)]]
    assert sorted(set(phases), key=phases.index) == ["Pending", "Running", "Succeeded"]


async def test_container_has_its_environment_code_and_working_directory(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/mine.py").write_text("A = 'mine'")
    show = "import mine, os; print(mine.A, *map(os.getenv, ('SAID', 'HOSTNAME')), os.listdir(), os.getcwd())"
    of = pod(python(show, env=[{"name": "SAID", "value": "/data/x"}], volumeMounts=AT), volumes=[DATA])
    async with node(tmp_path, code=tmp_path / "code") as kubelet:
        await kubelet.ran(of)
        (line,) = await kubelet.lines(of)
        here = kubelet.root / uid(of)
        assert line == f"mine {here}/volumes/data/x {of['metadata']['name']} [] {here}/{layout.WORK}/main.0"


async def test_invalid_program_is_reported_with_the_runtime_error(tmp_path, kubelet):
    script = tmp_path / "script"
    script.write_text("no program")
    cases = {
        "no-such-program": 'exec: "no-such-program": executable file not found in $PATH: unknown',
        "/no/such": 'exec: "/no/such": no such file or directory: unknown',
        str(script): f'exec: "{script}": permission denied: unknown',
    }
    for command, words in cases.items():
        status = await kubelet.ran(pod({"name": "main", "image": "i", "command": [command]}))
        terminated = get_terminated(status)
        assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
        assert terminated["startedAt"] == "1970-01-01T00:00:00Z"
        assert terminated["message"].endswith(words)
    script.chmod(stat.S_IRWXU)
    status = await kubelet.ran(pod({"name": "main", "image": "i", "args": [str(script)]}))
    assert get_terminated(status)["message"].endswith("exec format error: unknown")


async def test_container_that_cannot_be_created_waits_beside_running_ones(tmp_path):
    asks = shell("true", "asks", envFrom=[{"secretRef": {"name": "s"}}])
    pulls = {**shell("true", "pulls"), "image": "unknown"}
    of = pod(shell("sleep 60", image="known"), {**asks, "image": "known"}, pulls)
    async with node(tmp_path, images={"known": "."}, strict_images=True) as kubelet:
        await kubelet.run(of)
        status = await kubelet.when(of, lambda status: "running" in status["containerStatuses"][0]["state"])
        assert status["phase"] == "Pending"
        assert waits(status, 1) == ("CreateContainerConfigError", 'secret "s" not found')
        assert waits(status, 2)[0] == "ImagePullBackOff"
        assert (await kubelet.terminated(of, 0))["phase"] == "Failed"


async def test_container_is_restarted_in_place_with_backoff(kubelet):
    # Each run has a new working directory.
    script = "test -e mine && echo again; touch mine; "
    script += "read n < /data/n; echo run $n; echo $((n + 1)) > /data/n; test $n = 3"
    of = pod(
        shell(script, volumeMounts=AT),
        initContainers=[shell("echo 0 > /data/n", "init", volumeMounts=AT)],
        volumes=[DATA],
        policy="OnFailure",
    )
    (container,) = (await kubelet.ran(of))["containerStatuses"]
    assert (container["restartCount"], container["lastState"]["terminated"]["exitCode"]) == (3, 1)
    waited = [waits(each) for each in kubelet.reported.statuses[uid(of)]]
    delays = {message.split()[1] for reason, message in waited if reason == "CrashLoopBackOff"}
    assert (delays, await kubelet.lines(of)) == ({"0.05s", "0.1s"}, ["run 3"])
    assert await kubelet.lines(of, previous=True) == ["run 2"]


async def test_followed_log_continues_across_restarts_until_the_end(kubelet):
    script = (
        "echo begin; while ! test -e /data/go; do sleep 0.01; done; rm /data/go; echo end; test -e /data/last"
    )
    of = pod(shell(script, volumeMounts=AT), volumes=[DATA], policy="OnFailure")
    assert await kubelet.lines(of, follow=True) == []  # The pod does not exist yet.
    await kubelet.run(of)
    follower = asyncio.create_task(kubelet.lines(of, follow=True))
    data = kubelet.root / uid(of) / "volumes/data"
    await kubelet.phase(of, "Running")
    (data / "go").touch()
    await kubelet.restarted(of)
    assert not follower.done()
    (data / "last").touch()
    (data / "go").touch()
    assert await follower == ["begin", "end"] * 2
    assert await kubelet.lines(of, follow=True, tail=1) == ["end"]


@pytest.mark.parametrize(
    ("script", "fields", "message"),
    [
        ("echo bye > /dev/termination-log; exit 1", {}, "bye\n"),
        ("echo bye > /tmp/last; exit 1", {"terminationMessagePath": "/tmp/last"}, "bye\n"),
        ("echo out; echo err >&2; exit 1", {"terminationMessagePolicy": "FallbackToLogsOnError"}, None),
        ("echo out; exit 0", {"terminationMessagePolicy": "FallbackToLogsOnError"}, ""),
        ("echo out; exit 1", {}, ""),
    ],
)
async def test_termination_message_follows_its_path_and_policy(script, fields, message, kubelet):
    written = get_terminated(await kubelet.ran(pod(shell(script, **fields)))).get("message", "")
    assert sorted(written.split()) == ["err", "out"] if message is None else written == message


async def test_worker_waits_until_its_master_is_running(kubelet):
    gate = {"name": "init-pytorch", "image": "alpine:3.10", "command": ["sh", "-c", "nslookup"]}
    worker = replica("worker", shell("true"), initContainers=[gate])
    stranger = replica("master", shell("sleep 60"), job="other")
    master = replica("master", shell("sleep 60"), initContainers=[shell("sleep 0.1", "init")])
    await kubelet.running(worker, stranger)
    status = await kubelet.when(
        worker, lambda status: "running" in status["initContainerStatuses"][0]["state"]
    )
    assert (status["phase"], waits(status)) == ("Pending", ("PodInitializing", ""))
    status = await kubelet.ran(master, worker)
    assert status["phase"] == "Succeeded"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert kubelet.reported.statuses[uid(master)][-1]["phase"] == "Running"


async def test_worker_fails_when_its_master_does_not_start_in_time(tmp_path):
    gate = {"name": "init-pytorch", "image": "alpine:3.10"}
    async with node(tmp_path, master_patience=0.05) as kubelet:
        status = await kubelet.ran(replica("worker", shell("true"), initContainers=[gate]))
        assert status["phase"] == "Failed"
        assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


async def test_pod_fails_after_its_active_deadline(kubelet):
    of = pod(shell("trap 'exit 0' TERM; while :; do sleep 0.01; done"), activeDeadlineSeconds=1)
    status = await kubelet.ran(of)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert get_terminated(status)["exitCode"] == 0


async def test_unicode_arguments_are_unchanged_in_the_log(kubelet):
    text = "Gr\u00fc\u00dfe, \u4e16\u754c 'quoted' \"twice\" \\ \t$HOME $(id) \U0001f642"
    of = pod({"name": "main", "image": "i", "command": ["printf", "%s\\n%s\\n", text, "end"]})
    await kubelet.ran(of)
    assert await kubelet.lines(of) == [text, "end"]


# Leave the parent, the session and the pipes, then report the pid.
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 3)
code = "import os, time; os.mkdir('/data/' + str(os.getpid())); time.sleep(600)"
os.execv(sys.executable, [sys.executable, "-c", code])
"""
# Start the daemon as a grandchild of a shell, and wait until it runs.
DAEMONIZE = 'python -c "$DAEMON"; while ! ls /data/[0-9]* >/dev/null 2>&1; do sleep 0.01; done'


def with_daemon(script, **fields):
    env = [{"name": "DAEMON", "value": DAEMON}]
    return shell(f"{DAEMONIZE}; {script}", env=env, volumeMounts=AT, **fields)


async def started(kubelet, of):
    await kubelet.run(of)
    await anext(kubelet.kubelet.read_log(uid(of), LogRequest(container="main", follow=True)))


def daemons(kubelet, of):
    """Return the pids of the daemons, in order of their start."""
    found = [each for each in (kubelet.root / uid(of) / "volumes/data").iterdir() if each.name.isdigit()]
    return [int(each.name) for each in sorted(found, key=lambda each: each.stat().st_mtime_ns)]


async def test_daemon_of_an_ended_container_is_killed_while_others_run(kubelet):
    sidecar = shell("while :; do sleep 0.01; done", "sidecar", restartPolicy="Always")
    of = pod(with_daemon("exit 1"), policy="OnFailure", initContainers=[sidecar], volumes=[DATA])
    await kubelet.run(of)
    await kubelet.restarted(of)
    first, *_ = daemons(kubelet, of)
    assert not is_alive(first)
    assert "running" in kubelet.reported.statuses[uid(of)][-1]["initContainerStatuses"][0]["state"]


async def test_terminated_pod_exits_within_its_grace_period(kubelet):
    script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    of = pod(with_daemon(script), volumes=[DATA])
    await started(kubelet, of)
    status = await kubelet.terminated(of, 60)
    assert (status["phase"], get_terminated(status)["exitCode"]) == ("Failed", 7)
    assert await kubelet.lines(of) == ["ready", "bye"]
    assert [is_alive(each) for each in daemons(kubelet, of)] == [False]


@pytest.mark.parametrize("first", [None, 3_600], ids=["one grace period", "a shortened one"])
async def test_container_that_ignores_sigterm_is_killed(kubelet, first):
    of = pod(shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
    await started(kubelet, of)
    if first is not None:
        await kubelet.kubelet.terminate_pod(uid(of), first)
    terminated = get_terminated(await kubelet.terminated(of, 0.1))
    assert (terminated["exitCode"], terminated["reason"]) == (137, "Error")


async def test_ended_and_unknown_pods_terminate_immediately(kubelet):
    of, never = pod(shell("true")), pod(shell("true"))
    await kubelet.ran(of)
    status = await kubelet.terminated(of, 30)
    assert (status["phase"], get_terminated(status)["reason"]) == ("Succeeded", "Completed")
    await kubelet.kubelet.terminate_pod(uid(never), 30)
    await kubelet.reported.wait_until_ended(uid(never))


async def test_pod_in_restart_backoff_can_be_terminated(tmp_path):
    of = pod(shell("exit 5"), policy="Always")
    async with node(tmp_path, back_off=RestartBackoff(first=600)) as kubelet:
        await kubelet.run(of)
        await kubelet.restarted(of)
        await kubelet.when(of, lambda status: "waiting" in status["containerStatuses"][0]["state"])
        status = await kubelet.terminated(of, 30)
        assert (status["phase"], get_terminated(status)["exitCode"]) == ("Failed", 5)


GROW = "import time; held = bytearray(200 << 20); time.sleep(60)"
LIMITED = {"limits": {"memory": "100Mi"}}


@pytest.mark.parametrize("script", ["python -c '%s'", "python -c '%s' & wait"])
async def test_container_above_its_memory_limit_is_killed_with_its_children(script, kubelet):
    of = pod(shell(script % GROW, resources=LIMITED), shell("sleep 60", "other"))
    await kubelet.run(of)
    status = await kubelet.when(of, lambda status: "terminated" in status["containerStatuses"][0]["state"])
    terminated = get_terminated(status)
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")
    assert "running" in status["containerStatuses"][1]["state"]


@pytest.mark.linux  # Other systems only sample the processes.
async def test_shared_memory_of_processes_counts_once(kubelet):
    share = """
import os, time
held = bytearray(60 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(0.8)
        os._exit(0)
time.sleep(0.8)
"""
    status = await kubelet.ran(pod(python(share, resources=LIMITED)))
    assert status["phase"] == "Succeeded"


async def test_lost_node_reports_no_status_and_leaves_no_process(kubelet):
    of = pod(with_daemon("while :; do sleep 0.01; done"), volumes=[DATA])
    await kubelet.running(of)
    following = asyncio.create_task(kubelet.lines(of, follow=True))
    statuses = list(kubelet.reported.statuses[uid(of)])
    kubelet.kubelet.kill_pods([uid(of)])
    assert await following == []
    assert marked(kubelet.root) == []
    assert kubelet.reported.statuses[uid(of)] == statuses


async def test_removed_pod_leaves_no_file(kubelet):
    writes = "mkdir d; touch d/f; echo x > $TMPDIR/x; readlink -f $TMPDIR"
    done, alive = pod(shell(writes)), pod(shell("sleep 60"))
    await kubelet.ran(done)
    await kubelet.running(alive)
    (temporary,) = await kubelet.lines(done)
    for each in (done, alive):
        await kubelet.kubelet.remove_pod(uid(each))
        await kubelet.kubelet.remove_pod(uid(each))
        assert await kubelet.lines(each, follow=True) == []
    assert list(kubelet.root.iterdir()) == []
    assert not Path(temporary).exists()


@pytest.mark.parametrize("options", [{"shim_patience": 0.3}], ids=["impatient"])
@pytest.mark.parametrize("how", ["terminated", "lost", "ended by itself"])
async def test_pod_with_a_removed_directory_can_still_end(tmp_path, how, kubelet):
    of = pod(shell(f"echo ready; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"))
    await started(kubelet, of)
    shutil.rmtree(kubelet.root / uid(of))
    if how == "terminated":
        assert (await kubelet.terminated(of, 0.1))["phase"] == "Failed"
    elif how == "lost":
        kubelet.kubelet.kill_pods([uid(of)])
        await kubelet.kubelet.remove_pod(uid(of))
    else:
        (tmp_path / "go").touch()
        status = await kubelet.phase(of, "Failed")
        assert status["reason"] == "NodeLost"


PUT = {
    "a pipe": "mkfifo {0}",
    "a directory": "mkdir {0}",
    "a link to nowhere": "ln -s /nowhere/file {0}",
    "a link to a pipe": "mkfifo {0}.pipe; ln -s {0}.pipe {0}",
    "a device": "mknod {0} c 1 3 || ln -s /dev/null {0}",
}
FILES = ("../../state.json", "../../state.json.new", "/dev/termination-log", "../../logs/main/0.0.log")


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
async def test_pod_that_replaces_shim_files_still_ends(kubelet, put):
    script = "; ".join(f"rm -f {file}; {put.format(file)}" for file in FILES)
    one = pod(shell(f"{script}; exit 3"))
    status = await kubelet.ran(one)
    assert (status["phase"], get_terminated(status)["exitCode"]) == ("Failed", 3)
    assert await asyncio.wait_for(kubelet.lines(one), 10) == []


async def test_container_restarts_although_it_replaced_its_termination_log(kubelet):
    script = "echo said >> /dev/termination-log; rm /dev/termination-log; mkfifo /dev/termination-log; exit 1"
    one = pod(shell(script), policy="OnFailure")
    await kubelet.run(one)
    await kubelet.restarted(one, 2)


async def test_symlinked_working_directory_is_not_followed_on_restart(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    script = f'd=$(basename "$PWD"); cd ..; mv $d moved; ln -s {mine} $d; exit 1'
    async with node(tmp_path) as kubelet:
        one = pod(shell(script), policy="OnFailure")
        await kubelet.run(one)
        await kubelet.restarted(one, 2)
        assert (mine / "file").read_text() == "mine"
        await kubelet.kubelet.remove_pod(uid(one))
        assert not (kubelet.root / uid(one)).exists()
    assert (mine / "file").read_text() == "mine"
