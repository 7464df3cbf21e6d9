"""``rota simulate`` as a person or a CI job runs it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.cli.simulate_scenario import draw_timeline
from rota.engine.simulator.simulation import simulate
from tests.support.command import RotaCommand
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
CRASH = str(ROOT / "examples" / "crash.toml")
CASE = str(ROOT / "examples" / "orders.json")


def simulate_json(run: RotaCommand, *arguments: str) -> dict[str, Any]:
    code, out, err = run("simulate", *arguments, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_a_group_that_closes_for_long_exceeds_the_limit(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    path = tmp_path / "closed.toml"
    path.write_text(
        'duration = "2h"\nstrategy = "range"\ntopics = {orders = 12}\n'
        '[[members]]\nname = "billing"\ncount = 2\n'
        '[[events]]\nat = "10m"\nleave = ["billing-0", "billing-1"]\n'
        '[[events]]\nat = "55m"\njoin = ["billing-0", "billing-1"]\n'
    )
    code, out, err = rota_command("simulate", str(path), "--max-downtime", "8h")
    # 12 partitions for 45 minutes, in which somebody may have wanted the group to rest
    assert "not counted: 9 h 1 min after all members closed" in out
    assert "outside of rebalances" not in out
    assert code == 1
    assert "and 9 h 1 min after all members closed, more than --max-downtime 8h" in err
    out = rota_command("simulate", str(path), "--compare").checked().out
    assert "shut down: time after all members closed; downtime is without it" in out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(rota_command: RotaCommand, example: Path) -> None:
    code, out, err = rota_command("simulate", str(example))
    assert (code, err) == (0, "")
    assert example.name in out
    assert "or the start of a rebalance" in out
    assert simulate_json(rota_command, str(example))["notes"] == []


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "crash",
        "rolling-deploy",
        "slow-poller",
        "static-restart",
    }


def test_json_has_the_totals_and_the_timeline(rota_command: RotaCommand) -> None:
    found = simulate_json(rota_command, CRASH)
    assert (found["strategy"], found["protocol"]) == ("cooperative-sticky", "cooperative")
    assert (found["rebalances"], found["moved"], found["moves_needed"]) == (3, 3, 3)
    silent = found["timeline"][1]
    assert silent["reason"] == "the session of billing-2 expired"
    assert (silent["orphaned"], silent["revoked"]) == (3, 0)
    assert list(silent["downtime_by_reason"]) == ["silent"]
    assert silent["downtime_ms"] == silent["downtime_by_reason"]["silent"] > 120_000
    assert found["downtime_at_least_ms"] < found["downtime_ms"] < found["downtime_at_most_ms"]
    assert found["delayed_records"] in range(120, 160)  # one a second in each partition
    assert 40_000 < found["added_lag_ms"] < found["worst_ms"]


def test_time_without_a_poll_is_apart(rota_command: RotaCommand) -> None:
    found = simulate_json(rota_command, str(ROOT / "examples" / "slow-poller.toml"))
    assert found["not_polled_ms"] == found["downtime_by_reason"].pop("not polled") == 900_000
    assert found["downtime_ms"] == sum(found["downtime_by_reason"].values()) < 20_000
    _, out, _ = rota_command("simulate", str(ROOT / "examples" / "slow-poller.toml"))
    assert "; 900.0s not polled; " in out


def test_another_policy_for_the_same_scenario(rota_command: RotaCommand) -> None:
    found = simulate_json(rota_command, CRASH, "--strategy", "range", "--static")
    assert (found["policy"], found["protocol"]) == ("range, static", "eager")
    assert found["seed"] == 0
    assert simulate_json(rota_command, CRASH, "--dynamic")["static"] is False
    assert simulate_json(rota_command, CRASH, "--seed", "7")["seed"] == 7


def test_the_picture_fits_the_width_and_is_plain(rota_command: RotaCommand) -> None:
    _, out, _ = rota_command("simulate", CRASH, "--width", "60")
    start = out.index("rebalances  ")
    drawn = out[start : out.index("digit:")].splitlines()
    assert all(len(line) <= 60 for line in drawn)
    assert out.isascii()
    rows = {line.split()[0]: line[12:] for line in drawn if line.startswith("billing")}
    assert set(rows) == {f"billing-{n}" for n in range(5)}
    assert set(rows["billing-2"]) == {"3", "."}
    assert rows["billing-4"].lstrip().strip("3") == ""


def test_a_large_group_is_cut_short_unless_all_is_asked_for(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    path = tmp_path / "large.toml"
    path.write_text('duration = "1m"\n[topics]\nt = 99\n[[members]]\nname = "m"\ncount = 45\n')
    _, short, _ = rota_command("simulate", str(path))
    assert "... 5 more: --all shows them" in short
    _, everything, _ = rota_command("simulate", str(path), "--all")
    assert "m-44" in everything


def test_the_partitions_with_the_longest_downtime_are_named(rota_command: RotaCommand) -> None:
    _, out, _ = rota_command("simulate", CRASH)
    assert "3 more partitions had downtime: --all lists them" in out
    _, everything, _ = rota_command("simulate", CRASH, "--all")
    assert "more partitions had downtime" not in everything
    assert len([line for line in everything.splitlines() if line.startswith("orders-")]) == 6


def test_loads_beyond_nine_are_letters() -> None:
    found = simulate('duration = "1m"\n[topics]\nt = 40\n[[members]]\nname = "m"\ncount = 3\n')
    rows = [str(line) for line in draw_timeline(found, 80)]
    assert [rows[n].rstrip()[-1] for n in (3, 4, 5)] in (
        ["e", "d", "d"],
        ["d", "e", "d"],
        ["d", "d", "e"],
    )
    alone = simulate('duration = "1m"\n[topics]\nt = 40\n[[members]]\nname = "m"\n')
    assert str(draw_timeline(alone, 80)[3]).endswith("+")


def test_compare_shows_every_policy_and_the_best(rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("simulate", CRASH, "--compare")
    assert code == 0
    for policy in ("as in the scenario (cooperative-sticky)", "range", "sticky, static"):
        assert policy in out
    assert re.search(r"downtime by reason +revoked +moved +silent\n", out)
    compared = simulate_json(rota_command, CRASH, "--compare")
    assert len(compared["compare"]) == 9
    # a static member that crashes is missed as long as a dynamic one, under every strategy
    assert (compared["best"], compared["same"]) == (None, [])
    policies = [row["policy"] for row in compared["compare"]]
    assert compared["similar"] == [one for one in policies if one != "cooperative-sticky"]
    names = "as in the scenario (cooperative-sticky); range; range, static; roundrobin"
    assert f"no clear best: these differ by less than 58 %, which is noise: {names}; " in out
    assert "best policy" not in out


DYNAMIC = (
    (ROOT / "examples" / "static-restart.toml")
    .read_text(encoding="utf-8")
    .replace("static = true", "")
    .replace('strategy = "cooperative-sticky"', 'strategy = "sticky"')
)


def test_the_policy_of_the_scenario_is_the_best(rota_command: RotaCommand, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.toml"
    path.write_text(DYNAMIC, encoding="utf-8")
    compared = simulate_json(rota_command, str(path), "--compare")
    best = compared["compare"][0]
    assert best["downtime_ms"] - min(row["downtime_ms"] for row in compared["compare"]) < 100
    assert (compared["best"], compared["same"]) == ("as in the scenario", ["sticky"])
    assert compared["similar"] == []
    out = rota_command("simulate", path, "--compare").checked().out
    text = "sticky, as in the scenario: no other policy has less downtime\n"
    assert f"\nbest policy by downtime: {text}" in out
    draw = "the result is one draw: with 5 rebalances, differences below 45 % are noise; "
    assert f"{draw}repeat with --seed 1 and --seed 2\n" in out


def test_a_difference_within_the_noise_names_no_best(rota_command: RotaCommand) -> None:
    """Cooperative-sticky is better with seeds 1 and 2, and sticky only seems so with seed 0."""
    slow = str(ROOT / "examples" / "slow-poller.toml")
    compared = simulate_json(rota_command, slow, "--compare")
    own, cooperative = (
        next(row["downtime_ms"] for row in compared["compare"] if row["policy"] == policy)
        for policy in ("as in the scenario", "cooperative-sticky")
    )
    assert 1.3 * own < cooperative < 1.4 * own
    similar = ["as in the scenario", "range", "roundrobin", "cooperative-sticky"]
    assert (compared["best"], compared["similar"]) == (None, similar)
    compared = simulate_json(rota_command, slow, "--compare", "--seed", "1")
    assert compared["best"] == "cooperative-sticky"


RANDOM = """
import random
import rota
class Random(rota.PartitionAssignor):
    name = "random"
    def assign_partitions(self, partitions, subscriptions):
        generator = random.Random(",".join(subscriptions))
        assignment = {member: [] for member in subscriptions}
        for number in range(partitions["orders"]):
            member = generator.choice(list(subscriptions))
            assignment[member].append(rota.TopicPartition("orders", number))
        return assignment
"""


def test_a_policy_that_balances_worse_is_never_the_best(
    rota_command: RotaCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the least downtime, because the member that crashes has fewer partitions."""
    (tmp_path / "random_to_simulate.py").write_text(RANDOM)
    monkeypatch.chdir(tmp_path)
    flags = (CRASH, "--strategy", "random_to_simulate:Random", "--compare", "--dynamic")
    compared = simulate_json(rota_command, *flags)
    least = min(compared["compare"], key=lambda row: row["downtime_ms"])
    assert least["policy"] == "random"
    assert "random" not in {compared["best"], *compared["same"], *compared["similar"]}
    out = rota_command("simulate", *flags).checked().out
    assert "\nnot the best: random: it balances the load less evenly\n" in out


def test_a_comparison_says_that_the_deploys_change_the_policy(rota_command: RotaCommand) -> None:
    switch = str(ROOT / "examples" / "switch-strategy.toml")
    out = rota_command("simulate", switch, "--compare", "--dynamic").checked().out
    assert "\nas in the scenario (range, then cooperative-sticky)  " in out
    assert "every member has the policy of the row from the start\n" in out
    out = rota_command("simulate", CRASH, "--compare", "--dynamic").checked().out
    assert "deploys of the scenario" not in out


def test_compare_takes_a_strategy_of_the_users(
    rota_command: RotaCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_to_simulate.py").write_text(
        "import rota\n"
        "class First(rota.PartitionAssignor):\n"
        "    name = 'first'\n"
        "    def assign_partitions(self, partitions, subscriptions):\n"
        "        first = min(subscriptions)\n"
        "        everything = [(t, p) for t, n in partitions.items() for p in range(n)]\n"
        "        return {m: everything if m == first else [] for m in subscriptions}\n"
    )
    monkeypatch.chdir(tmp_path)
    flags = (CRASH, "--strategy", "mine_to_simulate:First", "--compare", "--static")
    rows = simulate_json(rota_command, *flags)["compare"]
    assert [row["policy"] for row in rows][-2:] == ["cooperative-sticky, static", "first, static"]
    assert rows[-1]["idle"] == 3
    scenario = Path(CRASH).read_text(encoding="utf-8")
    line = next(line for line in scenario.splitlines() if line.startswith("strategy"))
    own = scenario.replace(line, 'strategy = "mine_to_simulate:First"')
    (tmp_path / "mine.toml").write_text(own, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as in a new process
    assert simulate_json(rota_command, "mine.toml")["strategy"] == "first"


def test_max_downtime_is_an_exit_code(rota_command: RotaCommand) -> None:
    assert rota_command("simulate", CRASH, "--max-downtime", "1000")[0] == 0
    for limit in ("17m", "1h30m", "146s", "900000ms"):
        assert rota_command("simulate", CRASH, "--max-downtime", limit)[0] == 0
    code, _, err = rota_command("simulate", CRASH, "--max-downtime", "2m")
    assert (code, err.endswith("more than --max-downtime 2m\n")) == (1, True)
    code, out, err = rota_command("simulate", CRASH, "--max-downtime", "0.5")
    assert code == 1
    assert "needed)" in out
    assert err.startswith("rota: the downtime is 1")
    assert err.endswith(" partition-seconds, more than --max-downtime 500ms\n")


BROKEN = """
import rota
class Broken(rota.PartitionAssignor):
    name = "broken"
    def assign_partitions(self, partitions, subscriptions):
        raise KeyError("by design")
"""


def test_a_policy_that_reads_nothing_is_never_the_best(
    rota_command: RotaCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_to_simulate.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    flags = (CRASH, "--strategy", "broken_to_simulate:Broken")
    code, _, err = rota_command("simulate", *flags, "--max-downtime", "60")
    assert code == 1
    assert err == "rota: 12 partitions never read, which exceeds every --max-downtime\n"
    _, out, _ = rota_command("simulate", *flags)
    assert "5 members ended with an error, 12 partitions never read" in out
    _, out, _ = rota_command("simulate", *flags, "--compare")
    assert "which is noise: as in the scenario (cooperative-sticky); range; " in out
    assert "broken" not in next(one for one in out.splitlines() if one.startswith("no clear best"))
    assert "not sound: broken, static: 5 members ended with an error" in out


def test_there_is_no_best_where_no_policy_reads_all(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    path = tmp_path / "pattern.toml"
    path.write_text('duration = "1m"\n[topics]\nt = 1\n[[members]]\nname = "m"\npattern = "x"\n')
    _, out, _ = rota_command("simulate", str(path), "--compare")
    assert "no best policy: " in out
    assert simulate_json(rota_command, str(path), "--compare")["best"] is None
    assert rota_command("simulate", str(path), "--max-downtime", "100")[0] == 1


def test_events_are_in_the_picture_and_listed(rota_command: RotaCommand) -> None:
    _, out, _ = rota_command("simulate", CRASH, "--width", "80")
    drawn = dict(line.split(maxsplit=1) for line in out.splitlines()[2:6])
    assert drawn["h:mm:ss"].startswith("0:00:00   0:02:12   0:04:24")
    assert drawn["events"].split() == ["|", "|"]
    assert "0:05:00  crash billing-2\n" in out.replace(" \n", "\n")
    assert "0:08:00  join billing-4\n" in out.replace(" \n", "\n")


EVENTFUL = """
duration = "30m"
[topics]
t = 8
[[members]]
name = "m"
count = 4
joins = "0s"
apart = "1m"
[[members]]
name = "solo"
static = true
"""
HAPPENINGS = {
    "leave = 'm-0'": "leave m-0",
    "stall = ['m-0', 'm-1']\nfor = '10s'": "stall m-0, m-1 for 10s",
    "pause = 'm'\nfor = '10s'": "pause m-0, m-1, m-2 and 1 more for 10s",
    "slow = 'm-0'\nprocessing = '1s'": "slow m-0: 1s between polls",
    "slow = 'm-0'\nprocessing = '1s'\nfor = '1m'": "slow m-0 for 1m: 1s between polls",
    "restart = 'solo'": "restart solo, down for 5s",
    "deploy = 'm-0'\nsurge = true": "deploy m-0, with surge, 30s between",
    "deploy = 'm-0'\nstrategy = 'range'\nstatic = true": (
        "deploy m-0, each down for 5s, 30s between, strategy range, static ids"
    ),
    "subscribe = 'm-0'\ntopics = ['t']": "subscribe m-0 to t",
    "partitions = {t = 9}": "partitions t = 9",
    "coordinator_down = '20s'": "coordinator_down for 20s",
}


@pytest.mark.parametrize(("event", "message"), HAPPENINGS.items())
def test_each_event_is_told(
    rota_command: RotaCommand, tmp_path: Path, event: str, message: str
) -> None:
    path = tmp_path / "event.toml"
    path.write_text(f"{EVENTFUL}[[events]]\nat = '10m'\n{event}\n")
    _, out, _ = rota_command("simulate", str(path))
    assert message in [line.partition("0:10:00  ")[2].rstrip() for line in out.splitlines()]
    assert "2 members at first" in out


def test_many_events_are_cut_short(rota_command: RotaCommand, tmp_path: Path) -> None:
    path = tmp_path / "events.toml"
    events = "".join(f"[[events]]\nat = '{n}m'\ncrash = 'm-0'\n" for n in range(5, 16))
    path.write_text(EVENTFUL + events)
    _, out, _ = rota_command("simulate", str(path))
    assert "1 more event: --all lists them" in out
    assert out.count("note: ") == 5
    assert "5 more notes: --all lists them" in out
    assert "1 more event" not in rota_command("simulate", str(path), "--all")[1]
    path.write_text(EVENTFUL + events.split("[[events]]\nat = '12m'")[0])
    assert "1 more note: --all" in rota_command("simulate", str(path))[1]


def test_rows_add_up_to_the_summary(rota_command: RotaCommand) -> None:
    restart = str(ROOT / "examples" / "static-restart.toml")
    _, out, _ = rota_command("simulate", restart)
    assert "outside of rebalances: billing-1 60.0s" in out
    found = simulate_json(rota_command, restart)
    outside = found["outside"]
    assert outside["by_process"] == {"billing-1": outside["downtime_ms"]}
    assert outside["downtime_by_reason"] == {"restarted": outside["downtime_ms"]}
    assert outside["downtime_ms"] > 60_000
    inside = sum(rebalance["downtime_ms"] for rebalance in found["timeline"])
    assert inside + outside["downtime_ms"] == found["downtime_ms"]


def test_loads_are_shown(rota_command: RotaCommand) -> None:
    found = simulate_json(rota_command, CRASH)
    assert sorted(found["loads"].values()) == [3, 3, 3, 3]
    assert found["timeline"][1]["loads"] == {"billing-0": 4, "billing-1": 4, "billing-3": 4}
    deploy = str(ROOT / "examples" / "rolling-deploy.toml")
    assert " 3 to 5 " in rota_command("simulate", deploy)[1]
    rows = simulate_json(rota_command, deploy, "--compare")["compare"]
    assert all(set(row["loads"].values()) == {3} for row in rows)


def test_the_solver_is_in_the_title(rota_command: RotaCommand) -> None:
    _, out, _ = rota_command("simulate", CRASH, "--solver", "exact")
    assert "cooperative protocol, solver exact: 12 partitions" in out
    _, out, _ = rota_command("simulate", CRASH, "--solver", "exact", "--strategy", "range")
    assert "solver" not in out


def test_notes_of_a_comparison_name_their_policies(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    path = tmp_path / "surge.toml"
    path.write_text(
        f"{EVENTFUL}[[events]]\nat = '10m'\ndeploy = 'solo'\nsurge = true\n"
        "[[events]]\nat = '20m'\njoin = 'm-1'\n"
    )
    _, out, _ = rota_command("simulate", str(path), "--compare", "--all")
    notes = [line for line in out.splitlines() if line.startswith("note: ")]
    assert notes[0] == "note: at 0:20:00: m-1 runs already, so it is not started"
    fenced = notes[1:]
    assert fenced[0].startswith("note: as in the scenario (range")
    assert all("solo raised Fenced" in note for note in fenced)
    assert len(fenced) < 5  # the scenario's own and the static ones; some are equal
    assert any("sticky, static" in note for note in fenced)
    rows = simulate_json(rota_command, str(path), "--compare")["compare"]
    assert [len(row["notes"]) for row in rows] == [2, 1, 2, 1, 2, 1, 2, 1, 2]


def test_standard_input_is_read(rota_command: RotaCommand) -> None:
    _, out, _ = rota_command("simulate", "-", stdin=Path(CRASH).read_bytes())
    assert out.startswith("standard input: cooperative-sticky")
    _, _, err = rota_command("simulate", "-", stdin=b"x = 1")
    assert err.startswith("rota: standard input, line 1: x: unknown key")
    code, _, err = rota_command("simulate", "-", stdin=Path(CASE).read_bytes())
    assert code == 4
    assert err.endswith(
        "standard input: not a scenario: this looks like a case file: rota plan -\n"
    )


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ((), 2, "the following arguments are required: FILE"),
        (("no-such-file.toml",), 3, "no-such-file.toml: No such file or directory"),
        ((str(ROOT),), 3, "Is a directory"),
        ((CRASH, "--strategy", "rnage"), 4, "'rnage': did you mean 'range'? known"),
        ((CRASH, "--solver", "fast"), 4, "unknown solver 'fast': known are exact, kafka"),
        ((CRASH, "--seed", "-1"), 2, "'-1' is not a seed from 0"),
        ((CRASH, "--width", "7"), 2, "'7' is not a width from 40 to 1000"),
        ((CRASH, "--max-downtime", "x"), 2, "'x' is neither a number of seconds nor a time"),
        ((CRASH, "--max-downtime", "nan"), 2, "'nan' is neither a number of seconds nor"),
        (
            (CRASH, "--compare", "--max-downtime", "3"),
            2,
            "--max-downtime needs one strategy: leave out --compare",
        ),
        ((CRASH, "--static", "--dynamic"), 2, "not allowed with argument"),
        ((CRASH, "--compare", "--width", "80"), 2, "--width is for the timeline, which --compare"),
        ((CRASH, "--json", "--width", "80"), 2, "--width is for the timeline, which --compare"),
        (
            (CRASH, "--compare", "--strategy", "range"),
            2,
            "--strategy range: --compare has every built-in strategy: leave out one of the two",
        ),
        (
            (CASE,),
            4,
            f"{CASE}: not a scenario: this looks like a case file: rota plan {CASE}\n",
        ),
    ],
)
def test_wrong_flags(
    rota_command: RotaCommand, flags: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = rota_command("simulate", *flags)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_a_mistake_in_the_file_is_one_line(rota_command: RotaCommand, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('duration = "1m"\n[topics]\nt = 1\n[[members]]\nname = "m"\njoin = "1m"\n')
    code, out, err = rota_command("simulate", str(path))
    assert (code, out) == (4, "")
    assert err == (f"rota: {path}, line 6: members[0].join: unknown key: did you mean 'joins'?\n")
    path.write_text(path.read_text().replace('join = "1m"', 'pattern = "a{99999999999}"'))
    code, out, err = rota_command("simulate", str(path))
    assert (code, out) == (4, "")
    assert err.startswith(f"rota: {path}, line 6: members[0].pattern: 'a{{99999999999}}' is not a")
    path.write_bytes(b"\xff\xfe")
    assert "not a text file" in rota_command("simulate", str(path))[2]


def test_equal_policies_of_a_comparison_have_equal_rows(rota_command: RotaCommand) -> None:
    own, *rows = simulate_json(rota_command, CRASH, "--compare")["compare"]
    (same,) = (row for row in rows if row["policy"] == "cooperative-sticky")
    alone = simulate_json(rota_command, CRASH, "--strategy", "cooperative-sticky", "--dynamic")
    assert same == {key: alone[key] for key in own} | {"notes": []}
    assert own == same | {"policy": "as in the scenario", "static": None}


def test_interrupted(rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.engine.simulator.world.World.run_until", interrupted)
    assert rota_command("simulate", CRASH) == (130, "", "rota: interrupted\n")


def test_help_shows_examples_and_exit_codes(rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("simulate", "--help")
    assert code == 0
    assert "examples:" in out
    assert "is exceeded (--max-downtime)" in out


def test_progress_is_shown_where_somebody_looks(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rota.cli.simulate_scenario.PROGRESS_AFTER", 3600.0)
    assert rota_command("simulate", CRASH, "--json")[2] == ""  # not for a moment's work
    monkeypatch.setattr("rota.cli.simulate_scenario.PROGRESS_AFTER", 0.0)
    code, out, err = rota_command("simulate", CRASH, "--json")
    assert code == 0
    assert "simulating" in err
    assert json.loads(out)["rebalances"] == 3
    code, out, err = rota_command("simulate", CRASH, "--compare", "--json")
    assert "simulating" in err
    assert len(json.loads(out)["compare"]) == 9
