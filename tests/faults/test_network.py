"""The whole suite runs without a network (see conftest); here, that its guard sees what it must see."""

import os
import socket
from pathlib import Path

import pytest

from commands import assay


@pytest.mark.tries_network
def test_another_machine_is_refused_in_this_process() -> None:
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))  # an address for documentation, which nobody has
    with pytest.raises(ConnectionRefusedError):
        socket.getaddrinfo("example.invalid", 80)


@pytest.mark.tries_network
def test_data_that_must_be_fetched_are_asked_for_and_their_absence_is_one_message(digits_model: str) -> None:
    told = assay("eval", digits_model, "--data", "svhn/test", "--eps", "0.1", env={"ASSAY_DATA": ""})
    told.ended(4, "svhn", "ASSAY_DATA")
    assert "socket.getaddrinfo" in Path(os.environ["ASSAY_TEST_NETWORK"]).read_text()


def test_this_machine_is_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
