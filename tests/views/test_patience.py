"""What `views run` tells while a database or a server is away: not the same line each second."""

from __future__ import annotations

import logging

import pytest
from pequod_views.errors import TargetAwayError
from pequod_views.patience import Patience


def test_what_is_away_is_told_at_growing_distances_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pequod.views")
    now_s = [100.0]
    patience = Patience("db", lambda: now_s[0])
    patience.answers()
    error = TargetAwayError("db", "refused")
    told = dict[float, str]()
    for second in range(2000):
        caplog.clear()
        now_s[0] = 100.0 + second
        patience.is_away(error)
        if caplog.messages:
            (told[second],) = caplog.messages
    assert list(told) == [0, 10, 30, 70, 150, 310, 630, 1230, 1830]
    assert told[0] == "db does not answer: refused; it is waited for"
    assert told[30] == "db does not answer: refused; away for 30 s"
    caplog.clear()
    patience.answers()
    patience.answers()
    assert caplog.messages == ["db answers again after 1999 s"]
    caplog.clear()
    patience.is_away(error)
    assert caplog.messages == [told[0]], "another time begins"
