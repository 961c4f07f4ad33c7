"""Pods of real processes: environment, end and status."""

import asyncio
import stat

import pytest

from backend_plugin.embedded.shim import layout
from e2e.embedded.running_pods import get_terminated, node, pod, python, replica, shell, uid, waits

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
    status = await kubelet.ran(of)
    (container,) = status["containerStatuses"]
    assert (container["restartCount"], container["lastState"]["terminated"]["exitCode"]) == (3, 1)
    waited = [waits(each) for each in kubelet.reported.statuses[uid(of)]]
    delays = {message.split()[1] for reason, message in waited if reason == "CrashLoopBackOff"}
    assert delays == {"0.05s", "0.1s"}
    assert await kubelet.lines(of) == ["run 3"]
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
