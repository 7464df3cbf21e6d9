"""How a report's texts stand in the page: whole, visible, told once."""

from __future__ import annotations

from importlib import resources

import pytest

from tests.system.browser.conftest import UNSEEN, Opener
from tests.system.browser.report_window import PHONE, ReportWindow

#: How high the text of each element stands; a line is about 20 pixels.
_HEIGHTS = """(selector) => [...document.querySelectorAll(selector)].map((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return range.getBoundingClientRect().height;
})"""
_BROKEN = r"""() => {
  const broken = [];
  for (const step of document.querySelectorAll('#steps li')) {
    const walker = document.createTreeWalker(step, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const { 0: word, index } of walker.currentNode.data.matchAll(/[\w.,=]+/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, index);
        range.setEnd(walker.currentNode, index + word.length);
        if (range.getClientRects().length > 1) broken.push(word);
      }
    }
  }
  return broken;
}"""


def test_causes_marks_times_and_numbers_stand_on_one_line(open_report: Opener) -> None:
    window = open_report(size=PHONE)
    window.open("orders-app")
    for column in range(1, 10):
        heights = window.page.evaluate(_HEIGHTS, f"#rebalances tbody td:nth-child({column})")
        assert len(heights) == 28
        assert 10 < max(heights) < 30


def test_a_reason_takes_one_line_until_all_of_it_is_asked_for(open_report: Opener) -> None:
    window = open_report("many")
    window.open(window.rows()[0])
    heights = window.page.evaluate(
        "[...document.querySelectorAll('#rebalances tbody tr')].map((row) => row.offsetHeight)"
    )
    assert len(heights) == 50
    assert max(heights) < 34
    summary = window.locate("#rebalances td.reason summary").first
    assert summary.get_attribute("title") == summary.text_content()
    summary.focus()
    window.page.keyboard.press("Enter")
    clipped = summary.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert not clipped


@pytest.mark.parametrize("size", [PHONE, (700, 900), (1280, 900)])
def test_no_name_in_a_setting_is_broken(size: tuple[int, int], open_report: Opener) -> None:
    window = open_report(size=size)
    window.open("orders-app")
    assert "partition.assignment.strategy=" in window.text("#steps")
    assert window.locate("#steps wbr").count() > 2
    assert window.page.evaluate(_BROKEN) == []


def test_a_name_that_cannot_be_seen_can_be_clicked(open_report: Opener) -> None:
    window = open_report("unseen")
    assert set(window.rows()) == set(UNSEEN)
    for name, shown in UNSEEN.items():
        link = window.locate("#groups tbody tr").nth(window.rows().index(name)).locator("a")
        assert link.text_content() == shown
        window.open(name)
        assert window.text("#group h2") == shown
        assert window.page.title().startswith(shown)
        window.back()


def test_members_are_paged_by_fifty(open_report: Opener) -> None:
    window = open_report("many")
    window.open(window.rows()[0])
    window.locate("#who summary").click()
    window.locate("#members tbody tr").first.wait_for()
    assert window.locate("#members tbody tr").count() == 50
    listed = window.text("#listed-members")
    assert listed.startswith("1 to 50 of ")
    assert window.locate("#previous-members").is_disabled()
    window.locate("#next-members").click()
    assert window.text("#listed-members").startswith("51 to ")
    assert window.text("#members tbody tr:first-child td:first-child").strip() == "51"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_member_looks_in_the_legend_as_it_does_in_the_charts(
    scheme: str, open_report: Opener
) -> None:
    window = open_report()
    window.open("orders-app")
    window.locate("#who summary").click()
    window.locate("#members canvas").first.wait_for()
    window.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    window.settle()
    legend = window.page.evaluate(
        """() => [...document.querySelectorAll('#members canvas')].map((canvas) => {
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return [...new Set(new Uint32Array(data.buffer))];
        })"""
    )
    assert len(legend) == window.locate("#members tbody tr").count() > 8
    assert [len(colours) for colours in legend] == [1] * 8 + [2] * (len(legend) - 8)
    drawn = window.page.evaluate(
        """() => {
          const canvas = document.getElementById('was');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return [...new Set(new Uint32Array(data.buffer))];
        }"""
    )
    assert {colour for colours in legend for colour in colours} <= set(drawn)


def test_the_legend_has_every_cause_of_both_charts(open_report: Opener) -> None:
    window = open_report()
    for group in ("orders-app", "audit"):
        window.open(group)
        causes = {text[2:].strip() for text in window.locate("#causes li").all_text_contents()}
        assert causes == shown_causes(window, "#was") | shown_causes(window, "#would")
        window.back()


def shown_causes(window: ReportWindow, canvas: str) -> set[str]:
    label = window.locate(canvas).get_attribute("aria-label") or ""
    counted = label.partition(" (")[2].partition(")")[0]
    return {each.partition(" ")[2] for each in counted.split(", ")}


def test_only_what_keys_choose_is_spoken(open_report: Opener) -> None:
    window = open_report()
    window.open("audit")
    for attribute in ("role", "aria-live"):
        assert window.locate("#tip").get_attribute(attribute) is None
    assert window.locate("#told").get_attribute("aria-live") == "polite"
    box = window.box("#was")
    assert "audit-" in window.tip_at("#was", (box["width"] / 2, box["height"] / 2))
    assert window.text("#told") == ""
    window.leave_canvas()
    window.locate("#was").press("ArrowDown")
    assert window.text("#told") == window.text("#tip") != ""
    window.locate("#was").press("Shift+ArrowRight")
    assert window.text("#told").startswith("Rebalance ")
    window.locate("#was").press("+")
    assert window.text("#told") == window.text("#shown")


@pytest.mark.parametrize(
    ("begin", "end", "texts"),
    [
        ("2024-03-01", "2026-09-01", "2024-12-18 2025-12-18"),
        ("2025-12-31", "2026-01-02", "2025-12-31 06:00 12:00 18:00 2026-01-01 06:00 12:00 18:00"),
        ("2026-03-01", "2026-03-04", "03-01 12:00 03-02 12:00 03-03 12:00"),
    ],
)
def test_days_of_several_years_have_their_year(
    begin: str, end: str, texts: str, open_report: Opener
) -> None:
    files = resources.files("rota.report").joinpath("page")
    code = "\n".join(files.joinpath(name).read_text("utf-8") for name in ("format.js", "plot.js"))
    found = open_report().page.evaluate(
        f"""([begin, end]) => {{ {code}
          const view = new View(Date.parse(begin), Date.parse(end) - 1, () => {{}});
          return ticks(view, 8).map((tick) => tick.text).join(' ');
        }}""",
        [begin, end],
    )
    assert found == texts
