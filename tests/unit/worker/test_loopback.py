"""Stores of torch listen on the loopback interface if all ranks are on one machine."""

import os
from datetime import timedelta

import psutil
import pytest
from torch import distributed as dist

from flytekitplugins.kfpytorch.worker import torch_adaptations

pytestmark = [pytest.mark.torch, pytest.mark.linux]


@pytest.fixture(autouse=True)
def _on_one_machine(monkeypatch):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOOPBACK_ONLY", "1")


def served_at(port):
    """Return the addresses at which this process listens on `port`."""
    found = psutil.Process(os.getpid()).net_connections("tcp")
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN and each.laddr.port == port}


def store(host, port=0, **options):
    return dist.TCPStore(host, port, is_master=True, wait_for_workers=False, **options)


@pytest.mark.parametrize("libuv", [True, False])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "localhost"])
def test_store_with_a_loopback_address_listens_only_there(host: str, libuv: bool) -> None:
    with torch_adaptations.keep_stores_on_loopback():
        server = store(host, use_libuv=libuv)
        client = dist.TCPStore(host, server.port, is_master=False, timeout=timedelta(seconds=10))
    client.set("key", "value")
    assert server.get("key") == b"value"
    assert served_at(server.port) == {"127.0.0.1" if host == "localhost" else host}


def test_arguments_may_be_passed_by_position_and_by_name_and_another_address_is_left_to_torch():
    with torch_adaptations.keep_stores_on_loopback():
        by_position = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), False, True)
        by_name = dist.TCPStore(host_name="127.0.0.1", port=0, is_master=True, wait_for_workers=False)
        anywhere = store("0.0.0.0")
    found = [served_at(each.port) for each in (by_position, by_name, anywhere)]
    assert found == [{"127.0.0.1"}, {"127.0.0.1"}, {"::"}]


def test_two_stores_of_one_process_can_share_a_port_as_in_torch():
    with torch_adaptations.keep_stores_on_loopback():
        first = store("127.0.0.1", multi_tenant=True)
        second = store("127.0.0.1", first.port, multi_tenant=True)
    second.set("key", "value")
    assert first.get("key") == b"value"


def test_port_of_another_server_is_rejected_as_in_torch():
    with torch_adaptations.keep_stores_on_loopback():
        first = store("127.0.0.1")
        with pytest.raises(dist.DistNetworkError, match="EADDRINUSE"):
            store("127.0.0.1", first.port)


def test_process_group_can_be_recreated_on_the_same_port():
    with torch_adaptations.keep_stores_on_loopback():
        port = store("127.0.0.1").port
        for _ in range(3):
            dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
            assert served_at(port) == {"127.0.0.1"}
            dist.destroy_process_group()
    assert served_at(port) == set()


def test_stores_are_unchanged_without_the_variable_and_after_the_context(monkeypatch):
    with torch_adaptations.keep_stores_on_loopback():
        pass
    assert served_at((after := store("127.0.0.1")).port) == {"::"}
    monkeypatch.delenv("FLYTE_KFPYTORCH_LOOPBACK_ONLY")
    with torch_adaptations.keep_stores_on_loopback():
        without = store("127.0.0.1")
    assert served_at(without.port) == {"::"}
    assert after.port != without.port
