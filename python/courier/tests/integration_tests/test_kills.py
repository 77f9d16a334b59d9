"""What is finished stays finished, whoever is killed when."""

from __future__ import annotations

import random
import signal
import time

import pytest
from harness.server import ServerProcess

from tests.integration_tests.courier_process import STEPS, Courier


def some_time(moments: random.Random) -> None:
    """Somewhere within the next step or two."""
    time.sleep(moments.uniform(0, 0.06))


def assert_all_done_once(courier: Courier) -> None:
    steps = [f"{record['package']}/{record['step']}" for record in courier.steps()]
    assert sorted(steps) == sorted(STEPS)
    announced = courier.announced()
    assert len(announced) == len(set(announced))
    assert courier.report()["summary"]["n_steps_done"] == len(STEPS)


@pytest.mark.parametrize("seed", range(2))
def test_courier_is_killed(courier: Courier, seed: int) -> None:
    moments = random.Random(seed)
    for n in (1, 7, 14, 20):
        courier.start()
        courier.wait_for_steps(n)
        some_time(moments)
        courier.kill()
        kept = courier.steps()
        said = [step for step in courier.announced() if step not in STEPS]
        assert not said
        assert len(courier.announced()) <= len(kept)
        courier.start()  # a life that is killed while it starts
        some_time(moments)
        courier.kill()
        assert courier.steps()[: len(kept)] == kept
    courier.start()
    courier.finish()
    assert courier.steps()[: len(kept)] == kept
    assert_all_done_once(courier)


def test_the_server_is_killed(courier: Courier, server: ServerProcess) -> None:
    moments = random.Random(3)
    courier.start()
    for n in (2, 9, 16):
        courier.wait_for_steps(n)
        some_time(moments)
        server.send_signal(signal.SIGKILL)
        server.process.wait()
        kept = courier.steps()
        if n == 16:  # and courier too
            courier.kill()
            courier.start()
        server.restart()
    courier.finish()
    assert courier.steps()[: len(kept)] == kept
    assert_all_done_once(courier)
    names = [event["name"] for event in courier.report()["events"]]
    assert names.count("pool") >= 4
