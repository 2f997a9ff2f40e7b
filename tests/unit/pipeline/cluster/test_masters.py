"""Addresses of Spark masters, and this machine's address on the way to them."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from oncebench.delivery.errors import RefusedStart
from pipeline.spark.cluster.masters import addresses, answers, driver_address, is_local, is_loopback, is_standalone


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_a_local_master_has_its_executors_on_this_machine(master: str) -> None:
    assert is_local(master)
    assert not is_standalone(master)


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h:6443"])
def test_executors_of_other_masters_may_be_anywhere(master: str) -> None:
    assert not is_local(master)


@pytest.mark.parametrize(
    ("master", "found"),
    [
        ("spark://one:7077", (("one", 7077),)),
        ("spark://one:7077,two:7078", (("one", 7077), ("two", 7078))),
        ("spark://[::1]:7077", (("::1", 7077),)),
    ],
)
def test_every_master_of_a_cluster_is_found(master: str, found: tuple[tuple[str, int], ...]) -> None:
    assert addresses(master) == found


@pytest.mark.parametrize("master", ["spark://one", "spark://one:", "spark://:7077", "spark://one:7077,", "yarn",
                                    "spark://a..corp:7077", "spark://one:70770", "spark://one:0"])  # fmt: skip
def test_a_master_without_host_and_port_is_refused(master: str) -> None:
    with pytest.raises(RefusedStart, match="Write it like spark://host:7077"):
        addresses(master)


def test_a_master_on_loopback_gets_a_driver_on_loopback() -> None:
    address = driver_address("spark://127.0.0.1:7077")
    assert address == "127.0.0.1"
    assert is_loopback(address)
    assert not is_loopback("10.0.0.1")


def test_the_next_masters_name_counts_where_one_is_unknown() -> None:
    assert driver_address("spark://no-such-host.invalid:7077,127.0.0.1:7077") == "127.0.0.1"
    assert driver_address("spark://no-such-host.invalid:7077") is None


def test_a_master_answers_where_a_process_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert answers(f"spark://127.0.0.1:{port}")
        assert answers(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    assert not answers(f"spark://127.0.0.1:{port}")
