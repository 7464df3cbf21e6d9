"""Nothing leaves the page, and no name does anything in it but stand there."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rota.report.story import GoldTables
from tests.support.gold_tables import HOSTILE, SCRIPT
from tests.system.browser.conftest import Opener


def test_the_page_asks_for_nothing_but_itself(open_report: Opener) -> None:
    window = open_report()
    for group in window.rows():
        window.open(group)
        window.back()
    assert window.requests == [window.address]


def test_a_policy_forbids_everything_else(open_report: Opener) -> None:
    window = open_report()
    policy = (
        window.locate('meta[http-equiv="Content-Security-Policy"]').get_attribute("content") or ""
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    refused = window.page.evaluate(
        """() => new Promise((done) => {
          document.addEventListener('securitypolicyviolation', (event) => done(event.blockedURI));
          const image = new Image();
          image.src = 'http://127.0.0.1:9/pixel.png';
          document.body.append(image);
        })"""
    )
    assert refused == "http://127.0.0.1:9/pixel.png"
    assert [one for one in window.complaints if "Content Security Policy" not in one] == []
    window.complaints.clear()
    assert window.requests.pop() == refused


def test_a_script_that_gets_in_does_not_run(open_report: Opener) -> None:
    window = open_report()
    window.page.evaluate(
        """() => {
          const made = document.createElement('div');
          made.innerHTML = '<img src=x onerror="window.broken = 1">';
          document.body.append(made);
          const script = document.createElement('script');
          script.textContent = 'window.broken = 2';
          document.body.append(script);
        }"""
    )
    window.settle()
    assert window.page.evaluate("window.broken === undefined")
    assert len(window.complaints) >= 1
    window.complaints.clear()
    window.requests[:] = [window.address]


def test_hostile_groups_are_listed_as_they_are_called(open_report: Opener) -> None:
    window = open_report("hostile")
    assert sorted(window.rows()) == sorted(HOSTILE)
    links = window.locate("#groups tbody a").all_text_contents()
    assert sorted(links) == sorted(HOSTILE)
    assert_nothing_injected(window.page.evaluate(_INJECTED))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_group_is_shown_as_it_is_called(
    name: str, open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report("hostile")
    window.open(name)
    assert window.text("#group-name") == name
    assert title_of(window.page.title()).startswith(title_of(name))
    owned = [row for row in read_tables("hostile").ownership.to_pylist() if row["group"] == name]
    window.locate("#group details summary").click()
    text = window.text("#members")
    assert {row["client_id"] for row in owned} == {
        row["client_id"] for row in owned if row["client_id"] in text
    }
    window.page.keyboard.press("0")
    window.settle()
    box = window.box("#chart")
    tip = window.tip_at("#chart", (box["width"] * 0.3, box["height"] * 0.5))
    assert f"{owned[0]['topic']}-" in tip
    reasons = [row for row in read_tables("hostile").rebalances.to_pylist() if row["group"] == name]
    shown = window.locate("#rebalances td.reason").all_text_contents()
    assert sorted(shown) == sorted(row["reason"] for row in reasons)
    window.page.keyboard.press("n")
    assert_nothing_injected(window.page.evaluate(_INJECTED))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_group_is_linked_to_by_its_name(name: str, open_report: Opener) -> None:
    window = open_report("hostile")
    encoded = window.page.evaluate("encodeURIComponent", name)
    window.page.goto(f"{window.address}#g={encoded}")
    window.locate("#group").wait_for(state="visible")
    assert window.text("#group-name") == name
    window.back()
    place = window.rows().index(name)
    link = window.locate("#groups tbody tr").nth(place).locator("a").get_attribute("href")
    assert link == f"#g={encoded}"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_link_to_a_hostile_name_that_is_not_there_names_it(
    name: str, open_report: Opener
) -> None:
    window = open_report()
    encoded = window.page.evaluate("encodeURIComponent", name)
    window.page.goto(f"{window.address}#g={encoded}")
    window.locate("#trouble").wait_for(state="visible")
    assert f"does not have the group of the link: {name}. " in window.text("#trouble")
    assert window.locate("#trouble bdi").text_content() == name
    assert_nothing_injected(window.page.evaluate(_INJECTED))


def test_hostile_text_in_what_could_not_be_read_is_text(open_report: Opener) -> None:
    text = open_report("hostile").text("#unread")
    assert SCRIPT in text
    assert "<img src=x onerror=alert(1)>" in text


def test_a_name_that_turns_text_around_does_not_turn_what_follows(open_report: Opener) -> None:
    window = open_report("hostile")
    turned = HOSTILE[2]
    direction = window.page.evaluate(
        """(name) => {
          const row = [...document.querySelectorAll('#groups tbody tr')]
            .find((one) => one.dataset.group === name);
          const isolated = row.querySelector('bdi') || row.querySelector('a');
          return getComputedStyle(isolated).unicodeBidi;
        }""",
        turned,
    )
    assert direction in {"isolate", "isolate-override", "plaintext"}


def test_a_long_name_does_not_push_numbers_out_of_sight(open_report: Opener) -> None:
    window = open_report("hostile")
    row = window.locate("#groups tbody tr").nth(window.rows().index(HOSTILE[3]))
    box = row.locator("td").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < 1280


def title_of(name: str) -> str:
    """A name without what a window's title cannot show."""
    return re.sub(r"[\x00-\x20\x7f]+", " ", name).strip()


_INJECTED = """() => ({
  elements: [...document.querySelectorAll('img, iframe, object, embed, base, form, svg, link')]
    .filter((one) => !one.matches('.glyph, .logo svg, .health svg, .search svg, svg.spark'))
    .filter((one) => !one.matches('.policy-plot, dialog#keys form')).map((one) => one.outerHTML),
  handlers: [...document.querySelectorAll('*')]
    .filter((one) => [...one.attributes].some((each) => each.name.startsWith('on')))
    .map((one) => one.outerHTML),
  scripts: [...document.querySelectorAll('script')]
    .filter((one) => one.type !== 'text/plain').length,
  links: [...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))
    .filter((one) => !/^#(main|g=[\\w.!~*'():,%-]*)?$/.test(one)),
})"""


def assert_nothing_injected(found: dict[str, object]) -> None:
    assert found == {"elements": [], "handlers": [], "scripts": 2, "links": []}
