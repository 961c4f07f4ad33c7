"""Each job has its own port."""

import socket

import pytest

from backend_plugin.embedded.ports import PortAllocator, is_free


def test_job_keeps_its_port_and_shares_it_with_no_other_job():
    ports = PortAllocator({"old": 20_123})
    given = {job: ports.get_port(job) for job in ("old", "new", "newer")}
    assert given["old"] == 20_123
    assert len(set(given.values())) == 3
    assert {job: ports.get_port(job) for job in given} == given


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", ""])
def test_port_in_use_is_not_assigned(address):
    first = PortAllocator({}).get_port("job")
    with socket.socket() as somebody:
        somebody.bind((address, first))
        somebody.listen()
        assert not is_free(first)
        assert PortAllocator({}).get_port("job") != first
    assert is_free(first)


def free_ports(count):
    ports = PortAllocator({})
    return [ports.get_port(f"job-{number}") for number in range(count)]


def test_released_port_can_be_assigned_to_another_job():
    span = free_ports(3)
    ports = PortAllocator({}, span)
    given = {job: ports.get_port(job) for job in ("a", "b", "c")}
    ports.release_port("b")
    ports.release_port("unknown")
    assert ports.get_port("d") == given["b"]
    assert sorted(given.values()) == sorted(span)


def test_port_allocation_fails_if_all_ports_are_in_use():
    span = free_ports(1)
    ports = PortAllocator({"a": span[0]}, span)
    with pytest.raises(OSError, match=f"no port from {span[0]} to {span[0]} is free"):
        ports.get_port("b")
