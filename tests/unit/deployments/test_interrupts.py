"""Signals while a stack starts, runs and stops."""

import os
import signal

import pytest

from durable_jobs.deployments.interrupts import Interrupts


def test_a_signal_cuts_a_start_short() -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
        interrupts.wait(5)


def test_a_signal_while_stopping_only_asks_for_haste() -> None:
    with Interrupts() as interrupts:
        interrupts.may_raise = False
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.wait(5)
        assert not interrupts.is_urgent
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.is_urgent


def test_what_nohup_ignores_stays_ignored_and_handlers_come_back() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, previous)
