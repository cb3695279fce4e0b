"""Shared by the tests of targets and data."""

import logging

import pytest


@pytest.fixture
def notices(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What the library has to say, also where a command line test before this one took the log for itself."""
    monkeypatch.setattr(logging.getLogger("assay"), "propagate", True)
    caplog.set_level(logging.INFO, "assay")
    return caplog
