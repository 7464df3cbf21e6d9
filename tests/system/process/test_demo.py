"""The main job as a newcomer runs it: a simulated day, over the wire, to the words and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.make_screenshots import OUT, README, demo, with_demo

from rota.report.story import Story, build_story, read_gold_tables
from tests.support.spark_start import spark_variables


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of its tables, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_variables().items():  # with Spark's own settings
            patch.setenv(name, value)
        printed = demo(folder)
    return folder / OUT, printed


@pytest.fixture(scope="module")
def story(demo_run: tuple[Path, str]) -> Story:
    return build_story(read_gold_tables(str(demo_run[0])))


def test_it_prints_what_the_readme_shows(demo_run: tuple[Path, str]) -> None:
    readme = README.read_text("utf-8")
    assert with_demo(readme, demo_run[1]) == readme, "make screenshots brings it up to date"


def test_its_page_tells_of_every_group_and_says_that_it_is_a_demo(
    demo_run: tuple[Path, str], story: Story
) -> None:
    page = (demo_run[0] / "report.html").read_text("utf-8")
    assert 'id="demo"' in page
    assert page.count("<tr data-group=") == len(story.groups) == 42


def test_each_advised_policy_has_owners_of_its_own(
    demo_run: tuple[Path, str], story: Story
) -> None:
    changed = {group.name for group in story.groups if group.verdict == "change"}
    assert len(changed) > 10
    assert set(read_gold_tables(str(demo_run[0])).advised["group"].to_pylist()) == changed
