"""One page of the report in a Chromium that is there already: the part that ``make test`` runs."""

from __future__ import annotations

import pytest

from tests.system.browser.conftest import Opener

pytestmark = pytest.mark.quick


def test_a_report_lists_its_groups_and_opens_one(open_report: Opener) -> None:
    window = open_report("demo")
    listed = window.rows()
    assert "orders-app" in listed
    window.open("orders-app")
    assert window.text("#group h1") == "orders-app"
    box = window.box("#chart")
    assert "orders" in window.tip_at("#chart", (box["width"] * 0.6, box["height"] * 0.5))
    window.back()
    assert window.rows() == listed
