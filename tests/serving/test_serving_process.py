"""A server in a process of its own: signals, and the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from serving_toys import GOAL, TOKEN, observation
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from acid import cli
from acid.serving import pack, unpack

# Prints its port, then "begun" when a plan is under way, and goes on with it when it reads a line.
SERVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from serving_toys import Point, TOKEN, service
from acid.serving import PolicyServer, run_server

class Slow(Point):
    def rollout(self, latent, actions):
        if self.batches[2:] and not self.asked:
            self.asked = True
            print("begun", flush=True)
            sys.stdin.readline()
        return super().rollout(latent, actions)

Slow.asked = False
run_server(PolicyServer(service(Slow()), token=TOKEN), port=0, ready=lambda port: print(port, flush=True))
print("ended", flush=True)
"""

TOLD = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # also where the tests themselves run under nohup


def client(port: str, token: str = TOKEN):
    headers = {"Authorization": f"Api-Key {token}"}
    patience = {"open_timeout": None, "ping_interval": None, "close_timeout": None}
    return connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, additional_headers=headers, **patience)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_signal_in_mid_request_lets_the_request_finish(number: signal.Signals):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", TOLD + SERVER]
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        port = process.stdout.readline().strip()
        with client(port) as connection:
            connection.recv()
            connection.send(pack({**observation(), **GOAL}))
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert unpack(connection.recv())["actions"].shape == (6, 2)
            with pytest.raises(ConnectionClosed) as error:
                connection.recv()
            assert error.value.rcvd is not None
            assert error.value.rcvd.code == 1001
        assert process.stdout.readline() == "ended\n"
        assert process.wait() == 0
        assert process.stderr.read() == ""


def test_nohup_keeps_the_server_when_the_terminal_closes():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(["nohup", sys.executable, "-c", SERVER], **pipes) as process:  # type: ignore[call-overload]
        port = process.stdout.readline().strip()
        process.send_signal(signal.SIGHUP)
        with client(port) as connection:
            connection.recv()
            connection.send(pack({**observation(), **GOAL}))
            assert process.stdout.readline() == "begun\n"
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert unpack(connection.recv())["actions"].shape == (6, 2)
        process.terminate()
        assert process.stdout.readline() == "ended\n"
        assert process.wait() == 0


def test_the_command_serves_a_cell_calibrates_it_and_stops(tmp_path: Path, capsys):
    sizes = ["--samples", "20", "--iterations", "4", "--elites", "4", "--results", str(tmp_path)]
    cli.main(["calibrate", "reacher", *sizes, "--episodes", "12", "--level", "0.9"])
    assert "plans that kept their word" in capsys.readouterr().out
    assert (tmp_path / "reacher" / "lewm" / "trust.json").is_file()
    command = [sys.executable, "-m", "acid.cli", "serve", "reacher", *sizes, "--port", "0"]
    environment = {**os.environ, "ACID_TOKEN": TOKEN}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        port = process.stdout.readline().strip().rpartition(":")[2]
        assert "is trusted" in process.stdout.readline()
        with client(port) as connection:
            metadata = unpack(connection.recv())
            assert (metadata["task"], metadata["model"], metadata["condition"]) == ("reacher", "lewm", "acid")
            image = np.zeros(metadata["inputs"]["observation/image"]["shape"], np.uint8)
            connection.send(pack({"observation/image": image, "goal/image": image + 9}))
            answer = unpack(connection.recv())
            assert answer["actions"].shape == (25, 2)
            assert answer["trusted"] is (answer["costs"]["consistency"] <= metadata["trust"]["threshold"])
        process.terminate()
        assert process.wait() == 0
        assert process.stderr.read() == "stopped\n"
        assert TOKEN not in process.stdout.read()
