"""Credentials are reloaded after changes of tokens, certificates, plugins and kubeconfigs."""

import asyncio
import json
import logging
import ssl
import stat
import threading
import time
from dataclasses import replace

import psutil
import pytest
from certificates import Authority
from kube_server import Fault, kubeconfig, served
from kube_world import JOBS, NAME, SetCredentials, following, job, opened
from serving import wait_until

from backend_plugin.kube import connection
from backend_plugin.kube.connection import Connection
from backend_plugin.kube.credentials import (
    ClusterAccess,
    CredentialsUnusable,
    InClusterCredentials,
    KubeconfigCredentials,
    select_credentials,
)
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell.cluster import ClusterUnavailable, ObjectName

# The official package calls `utcnow`, for which Python 3.12 emits a warning.
pytestmark = pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
JOB = ObjectName(namespace="ns", name=NAME)
API = "client.authentication.k8s.io/v1"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def server(server):
    server.tokens = {"first"}
    server.apply(JOBS, job())
    return server


def with_user(server, tmp_path, user):
    return KubernetesOptions(kubeconfig=kubeconfig(server, tmp_path / "config", user), request_timeout=1.0)


@pytest.fixture
def token(tmp_path):
    (tmp_path / "token").write_text("first\n")
    return tmp_path / "token"


def rotate(server, token):
    server.tokens = {"second"}
    token.write_text("second\n")


async def test_watch_continues_with_a_new_token(server, tmp_path, token):
    settings = with_user(server, tmp_path, {"tokenFile": str(token)})
    async with opened(settings) as cluster, following(cluster) as heard:
        rotate(server, token)
        server.cut()
        server.apply(JOBS, job("f2-n0-0-0123456789ab"))
        await wait_until(lambda: len(heard.names()) == 2)


def write_plugin(tmp_path, *lines):
    """Write a credential plugin with these shell commands, and return a kubeconfig's user with it."""
    plugin = tmp_path / "plugin"
    plugin.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    plugin.chmod(stat.S_IRWXU)
    return {"exec": {"apiVersion": API, "command": str(plugin)}}


def write_printing_plugin(tmp_path, *lines, **status):
    """Write a plugin that prints the token in the file `token`, after these commands; it counts its runs."""
    status = {"token": f"$(cat {tmp_path}/token)", **status}
    printed = json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": status})
    return write_plugin(tmp_path, f"echo run >> {tmp_path}/runs", *lines, f"cat <<EOF\n{printed}\nEOF")


async def test_plugin_is_run_again_after_its_credentials_are_rejected(server, tmp_path, token, caplog):
    caplog.set_level(logging.DEBUG)  # Debug messages of the official package are no failures of the plugin.
    user = write_printing_plugin(tmp_path, expirationTimestamp="2099-01-01T00:00:00Z")
    async with opened(with_user(server, tmp_path, user)) as cluster:
        assert await cluster.get(JOB)
        assert await cluster.get(JOB)
        assert (tmp_path / "runs").read_text() == "run\n"
        rotate(server, token)
        assert await cluster.get(JOB)
        server.tokens = {"third"}
        with pytest.raises(ClusterUnavailable):
            await cluster.get(JOB)
    assert (tmp_path / "runs").read_text() == "run\nrun\n"  # Repeated rejections do not run it each time.


async def test_plugin_slower_than_a_request_is_run_once_and_its_token_is_used(server, tmp_path, token):
    user = write_printing_plugin(tmp_path, f'[ "$(cat {token})" = first ] || sleep 1.5')
    config = kubeconfig(server, tmp_path / "config", user)
    async with opened(KubernetesOptions(kubeconfig=config, request_timeout=0.5)) as cluster:
        assert await cluster.get(JOB)
        rotate(server, token)
        gave_up = 0
        for _ in range(20):
            try:
                assert await cluster.get(JOB)
                break
            except ClusterUnavailable:
                gave_up += 1
        assert gave_up
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


FAILING = ("echo 'SSO session; it''s over' >&2", "exit 3")


async def test_failing_plugin_is_an_error_with_its_command_and_output(server, tmp_path):
    config = with_user(server, tmp_path, {"token": "first", **write_plugin(tmp_path, *FAILING)})
    with pytest.raises(CredentialsUnusable, match="SSO session; its over") as failed:
        async with opened(config):
            pass
    assert f"`{tmp_path}/plugin`" in str(failed.value)
    assert " b'" not in str(failed.value)
    (tmp_path / "plugin").unlink()
    with pytest.raises(CredentialsUnusable, match="No such file"):
        await KubeconfigCredentials(config.kubeconfig).load()
    assert not server.requests


async def test_server_keeps_its_credentials_while_the_plugin_fails(server, tmp_path, token):
    user = write_printing_plugin(tmp_path, expirationTimestamp="2020-01-01T00:00:00Z")
    async with opened(with_user(server, tmp_path, user)) as cluster:
        write_plugin(tmp_path, *FAILING)
        server.faults.append(Fault(code=401))
        assert await cluster.get(JOB)
        rotate(server, token)
        write_printing_plugin(tmp_path)
        cluster._connection._renewed = 0.0  # A reload after a rejection is limited to one in five seconds.
        assert await cluster.get(JOB)


def hanging(server, tmp_path):
    """Write a kubeconfig with a plugin that starts a process, writes both pids and waits."""
    pids = f"echo $$ $! > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pids"
    return kubeconfig(server, tmp_path / "config", write_plugin(tmp_path, "sleep 600 &", pids, "wait"))


def is_over(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def all_are_over(tmp_path):
    plugin, child = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    # The plugin exists until the event loop has reaped it.
    await wait_until(lambda: not psutil.pid_exists(plugin) and is_over(child))
    # The thread that reaped the plugin has to report its exit before the event loop closes.
    await wait_until(lambda: not any("waitpid" in thread.name for thread in threading.enumerate()))


async def test_hanging_plugin_is_killed_with_its_child_processes_after_the_timeout(server, tmp_path):
    with pytest.raises(CredentialsUnusable, match="no credentials within 5 s"):
        await KubeconfigCredentials(hanging(server, tmp_path), seconds=5.0).load()
    await all_are_over(tmp_path)


@pytest.mark.parametrize("is_starting", [True, False])
async def test_hanging_plugin_is_killed_when_its_caller_is_cancelled(server, tmp_path, is_starting):
    existing = psutil.Process().children()
    loading = asyncio.create_task(KubeconfigCredentials(hanging(server, tmp_path)).load())
    if is_starting:  # The event loop does not run between the start of the plugin and the cancellation.
        while psutil.Process().children() == existing:
            await asyncio.sleep(0)
        while not (tmp_path / "pids").exists():
            time.sleep(0.01)
    await wait_until((tmp_path / "pids").exists)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await all_are_over(tmp_path)


class Paper:
    """The certificates of a server and a client, which can be renewed."""

    def __init__(self, directory):
        self.authority = Authority("cluster")
        self.server = self.authority.issue_server(directory)
        self.ca, self.cert, self.key = (directory / each for each in ("ca.crt", "us.crt", "us.key"))
        self.renew("us")

    def renew(self, name):
        self.authority.issue(name, self.cert, self.key)

    def context(self):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server.certificate, self.server.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


@pytest.fixture
def paper(tmp_path):
    return Paper(tmp_path)


async def test_renewed_client_certificate_is_used(paper, tmp_path):
    with served(paper.context) as server:
        server.apply(JOBS, job())
        user = {"client-certificate": str(paper.cert), "client-key": str(paper.key)}
        config = kubeconfig(server, tmp_path / "config", user, **{"certificate-authority": str(paper.ca)})
        async with opened(KubernetesOptions(kubeconfig=config)) as cluster:
            assert await cluster.get(JOB)
            paper.renew("us-renewed")
            server.faults.append(Fault(code=401))  # An expired certificate is not accepted.
            assert await cluster.get(JOB)
        assert list(dict.fromkeys(server.peers)) == ["us", "us-renewed"]


def trusting(server, tmp_path, authority, name="127.0.0.1"):
    """Return the options of a client that expects a certificate of this authority with this name."""
    cluster = {"certificate-authority": str(authority), "tls-server-name": name}
    config = kubeconfig(server, tmp_path / "config", {"token": "first"}, **cluster)
    return KubernetesOptions(kubeconfig=config, request_timeout=2)


@pytest.mark.parametrize(
    ("authority", "name", "message"),
    [
        ("other.crt", "127.0.0.1", "certificate"),
        ("ca.crt", "other.test", r"127.0.0.1:\d+: .*not valid for 'other.test'"),
    ],
)
async def test_server_with_another_authority_or_name_is_rejected(paper, tmp_path, authority, name, message):
    (tmp_path / "other.crt").write_bytes(Authority("other").pem)
    with served(paper.context) as server:
        async with opened(trusting(server, tmp_path, tmp_path / authority, name)) as cluster:
            with pytest.raises(ClusterUnavailable, match=message):
                await cluster.get(JOB)
        assert server.requests == []


@pytest.mark.parametrize("name", ["server.test", "server.test."])
async def test_tls_server_name_may_differ_from_the_address(paper, tmp_path, name):
    with served(paper.context) as server:
        server.apply(JOBS, job())
        async with opened(trusting(server, tmp_path, paper.ca, name)) as cluster:
            assert await cluster.get(JOB)
            async with following(cluster):
                pass


class SlowCredentials(SetCredentials):
    """Credentials that count how often they are discarded, and whose loading takes some time."""

    discarded = 0

    async def load(self):
        await asyncio.sleep(0.01)
        return await super().load()

    def forget(self):
        self.discarded += 1


async def test_credentials_are_not_discarded_while_they_are_loaded(server, monkeypatch):
    monkeypatch.setattr(connection, "_RENEW", 0.0)
    accounts = SlowCredentials(ClusterAccess(server=server.url))
    held = Connection(accounts)
    await held.open()
    await asyncio.gather(held.renew_credentials(), held.renew_credentials())
    await held.close()
    assert accounts.discarded == 1


@pytest.mark.parametrize("url", ["", "127.0.0.1:6443", "localhost:6443", "https://", "ftp://localhost:1"])
async def test_an_invalid_url_is_rejected_when_the_connection_opens(url):
    held = Connection(SetCredentials(ClusterAccess(server=url)))
    with pytest.raises(CredentialsUnusable, match="write https://HOST:PORT"):
        await held.open()
    await held.close()


def test_pod_service_account_gives_the_credentials(paper, tmp_path):
    account = InClusterCredentials(tmp_path, IN_POD)
    with pytest.raises(CredentialsUnusable, match="token file does not exist"):
        asyncio.run(account.load())
    access = ClusterAccess(server="https://10.0.0.1:443", ca_file=str(paper.ca))
    for token in ("first\n", "second"):
        (tmp_path / "token").write_text(token)
        assert asyncio.run(account.load()) == replace(access, authorization=f"bearer {token.strip()}")


@pytest.mark.parametrize(
    "text", ["", "a: [", "[]", '{"current-context": "c"}', '{"contexts": 3, "current-context": "c"}']
)
def test_unusable_kubeconfig_is_rejected_with_a_remedy(tmp_path, text):
    config = tmp_path / "config"
    config.write_text(text)
    with pytest.raises(CredentialsUnusable, match="kubectl config get-contexts"):
        asyncio.run(KubeconfigCredentials(str(config)).load())


async def test_rewritten_kubeconfig_is_read_again(server, tmp_path):
    config = tmp_path / "config"
    held = KubeconfigCredentials(kubeconfig(server, config, {"token": "first"}))
    assert (await held.load()).authorization == "Bearer first"
    content = json.loads(config.read_text())
    content["users"][0]["user"]["token"] = "the-second"
    content["clusters"][0]["cluster"] |= {"proxy-url": "http://proxy:1", "tls-server-name": "k"}
    config.write_text(json.dumps(content))
    access = await held.load()
    assert access == ClusterAccess(
        server=server.url, authorization="Bearer the-second", proxy="http://proxy:1", server_name="k"
    )


def test_kubeconfig_options_take_precedence_over_the_pod_service_account():
    assert isinstance(select_credentials(KubernetesOptions(), IN_POD), InClusterCredentials)
    for options in ({"kubeconfig": "x"}, {"context": "x"}):
        found = select_credentials(KubernetesOptions(**options), IN_POD)
        assert isinstance(found, KubeconfigCredentials)
    assert isinstance(select_credentials(KubernetesOptions(), {}), KubeconfigCredentials)


async def test_netrc_password_is_not_sent_to_the_api_server(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(stat.S_IRUSR)
    monkeypatch.setenv("NETRC", str(netrc))
    async with opened(with_user(server, tmp_path, {"token": "first"})) as cluster:
        assert await cluster.get(JOB)


async def test_proxy_of_the_environment_is_used_except_for_excluded_hosts(server, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    far = kubeconfig(server, tmp_path / "config", {"token": "first"})
    config = (tmp_path / "config").read_text()
    (tmp_path / "config").write_text(config.replace(server.url, "http://api.invalid"))
    settings = KubernetesOptions(kubeconfig=far, request_timeout=1.0)
    async with opened(settings) as cluster:
        assert await cluster.get(JOB)
    monkeypatch.setenv("no_proxy", "api.invalid")
    async with opened(settings) as cluster:
        with pytest.raises(ClusterUnavailable, match=r"api\.invalid"):
            await cluster.get(JOB)
