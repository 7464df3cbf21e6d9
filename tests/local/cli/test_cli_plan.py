"""``rota plan`` as a person or a CI job runs it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rota.engine.formats.consumer_protocol import encode_sticky_user_data
from rota.engine.model.topic import Partitions
from tests.support.command import RotaCommand
from tests.support.paths import ROOT

SCENARIO = str(ROOT / "examples" / "crash.toml")
EXAMPLE = str(ROOT / "examples" / "orders.json")


def plan_json(run: RotaCommand, *arguments: str) -> dict[str, Any]:
    code, out, err = run("plan", *arguments, "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert isinstance(plan, dict)
    return plan


def test_without_a_command_all_are_shown(rota_command: RotaCommand) -> None:
    code, out, err = rota_command()
    assert (code, out) == (2, "")
    assert "which member would get which partition" in err
    assert "exit codes:" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pln", "rota: unknown command pln: did you mean plan? rota --help lists all commands\n"),
        (
            "groups decribe g",
            "rota groups: unknown subcommand decribe: did you mean describe? "
            "rota groups --help lists all subcommands\n",
        ),
        (
            "groups list --stat Empty --ful",
            "rota groups list: unknown option --ful; rota groups list --help lists all options\n",
        ),
        (
            "groups --bootstrap-servers X",
            "rota groups: a subcommand is missing: use one of list, describe, lag, reset, "
            "delete, delete-offsets\n",
        ),
        ("--strategy range", "rota: a command is missing: use one of plan, simulate, run, report"),
    ],
)
def test_a_misspelt_command_is_named(rota_command: RotaCommand, words: str, message: str) -> None:
    code, out, err = rota_command(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(message)


def test_json_has_the_documented_keys(rota_command: RotaCommand) -> None:
    plan = plan_json(rota_command, EXAMPLE, "--strategy", "sticky")
    documented = {"strategy", "solver", "assignment", "loads", "moved", "moves_needed"}
    assert documented | {"skipped_topics"} <= plan.keys()
    assert (plan["strategy"], plan["solver"], plan["solver_reason"]) == (
        "sticky",
        "kafka",
        "the default",
    )
    assert sum(plan["loads"].values()) == 21


def test_kafkas_default_list_without_a_strategy(rota_command: RotaCommand) -> None:
    plan = plan_json(rota_command, EXAMPLE)
    assert (plan["strategy"], plan["solver"], plan["protocol"]) == ("range", None, "eager")
    assert plan["solver_reason"] is None


def test_a_member_leaves(rota_command: RotaCommand) -> None:
    plan = plan_json(rota_command, EXAMPLE, "--remove", "billing-2", "--strategy", "sticky")
    assert plan["orphaned"] == 5
    assert plan["moved"] == plan["moves_needed"] == 0
    assert plan["loads"] == {"billing-0": 7, "billing-1": 7, "finance-0": 7}


def test_a_settled_group_is_made_where_nobody_owns_anything(rota_command: RotaCommand) -> None:
    flags = ("--partitions", "f=12", "--members", "2", "--add", "2")
    plan = plan_json(rota_command, *flags, "--strategy", "sticky")
    assert plan["loads"] == {"C0": 3, "C1": 3, "new-1": 3, "new-2": 3}
    assert (plan["moved"], plan["moves_needed"]) == (6, 6)
    assert plan_json(rota_command, *flags, "--strategy", "range")["moved"] == 9


def test_partitions_are_added(rota_command: RotaCommand, tmp_path: Path) -> None:
    case = tmp_path / "case.json"
    case.write_text(
        json.dumps(
            {
                "partitions": {"t": 2},
                "racks": {"t": [["r1"], ["r2"]]},
                "members": [
                    {"id": "a", "topics": ["t"], "owned": {"t": [0]}, "rack": "r1"},
                    {"id": "b", "topics": ["t"], "owned": {"t": [1]}, "rack": "r2"},
                ],
            }
        )
    )
    plan = plan_json(rota_command, str(case), "--partitions", "t=4", "--strategy", "sticky")
    assert plan["loads"] == {"a": 2, "b": 2}
    assert plan["moved"] == 0


def test_the_table_says_what_moves_and_from_whom(rota_command: RotaCommand) -> None:
    flags = ("plan", EXAMPLE, "--add", "1", "--strategy", "cooperative-sticky")
    code, out, _ = rota_command(*flags)
    assert code == 0
    assert out.startswith("cooperative-sticky (solver kafka), cooperative protocol: 21 partitions")
    assert "\nsolver kafka, as Java consumers: the default\n" in out
    assert "new-1" in out
    assert "5 moved (best balance needs 4)" in out
    assert "Rota consumers give another result (--solver exact): loads 4 to 5, 4 moved" in out
    assert "assigned in the next rebalance" in out
    code, out, _ = rota_command(*flags, "--solver", "exact")
    assert out.startswith("cooperative-sticky (solver exact), cooperative protocol: 21 partitions")
    assert "solver exact, as" not in out
    assert "4 moved (best balance needs 4)" in out
    assert "Java consumers give another result (--solver kafka): loads 4 to 5, 5 moved" in out


def test_compare_names_the_best(rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("plan", EXAMPLE, "--remove", "billing-2", "--compare")
    assert code == 0
    for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        assert strategy in out
    assert "best for this group: cooperative-sticky: loads 7, expected downtime 11.4s" in out
    titles = out.splitlines()[0].split()
    assert titles[-4:] == ["moved", "needed", "revoked", "downtime"]
    plans = plan_json(rota_command, EXAMPLE, "--remove", "billing-2", "--compare")["compare"]
    assert [plan["revoked"] for plan in plans] == [16, 16, 16, 16, 0, 0]
    assert min(plan["downtime_ms"] for plan in plans) == plans[-1]["downtime_ms"] == 11_375


def test_compare_ranks_by_downtime_and_then_by_moves(rota_command: RotaCommand) -> None:
    """A minute after a rebalance, members revoke their partitions at nearly the same time."""
    for solver, moved in (("exact", 4), ("kafka", 5)):
        words = ("plan", EXAMPLE, "--add", "1", "--compare", "--solver", solver)
        best = f"best for this group: sticky (solver {solver}): loads 4 to 5, expected downtime"
        out = rota_command(*words, "--stable", "58s").checked().out
        assert f"{best} 5.3s, {moved} moved\n" in out
        out = rota_command(*words).checked().out
        best = f"best for this group: cooperative-sticky (solver {solver}): loads 4 to 5, expected"
        assert best in out


def test_the_best_strategy_of_a_comparison_has_the_solver_of_java_by_default(
    rota_command: RotaCommand,
) -> None:
    words = ("plan", EXAMPLE, "--add", "1", "--compare")
    out = rota_command(*words).checked().out
    assert out == rota_command(*words, "--solver", "kafka").checked().out
    assert "best for this group: cooperative-sticky (solver kafka): loads 4 to 5" in out
    assert re.search(r"cooperative-sticky +exact +cooperative +4 to 5 +0 +4 +4 +4 +12\.2s\n", out)


def test_compare_says_what_the_plans_assume(rota_command: RotaCommand) -> None:
    nobody = "note: no member joins or leaves: the plan assumes that one of the members starts a"
    deploy = "note: in a rolling deploy the next rebalance begins sooner; --stable 30s shows that"
    out = rota_command("plan", EXAMPLE, "--compare").checked().out
    assert nobody in out
    assert deploy in out
    assert nobody in rota_command("plan", EXAMPLE, "--strategy", "range").checked().out
    for change in (("--add", "1"), ("--remove", "billing-2")):
        assert nobody not in rota_command("plan", EXAMPLE, *change, "--compare").checked().out
    # nothing moves, so no downtime depends on who starts the rebalance
    words = ("plan", EXAMPLE, "--strategy", "cooperative-sticky")
    assert nobody not in rota_command(*words).checked().out
    out = rota_command("plan", EXAMPLE, "--compare", "--stable", "30s").checked().out
    assert deploy not in out


def test_compare_takes_a_strategy_of_the_users(
    rota_command: RotaCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "mine_for_compare.py"
    module.write_text(
        "import rota\n"
        "class First(rota.PartitionAssignor):\n"
        "    name = 'first'\n"
        "    def assign_partitions(self, partitions, subscriptions):\n"
        "        first = min(subscriptions)\n"
        "        everything = [(t, p) for t, n in partitions.items() for p in range(n)]\n"
        "        return {m: everything if m == first else [] for m in subscriptions}\n"
    )
    monkeypatch.chdir(tmp_path)
    flags = ("--partitions", "t=4", "--members", "2", "--strategy", "mine_for_compare:First")
    compared = plan_json(rota_command, *flags, "--compare")["compare"]
    assert compared[-1]["strategy"] == "first"
    assert compared[-1]["loads"] == {"C0": 4, "C1": 0}


def test_max_moves_is_an_exit_code(rota_command: RotaCommand) -> None:
    flags = ("plan", "--partitions", "f=12", "--members", "2", "--add", "2", "--strategy", "sticky")
    assert rota_command(*flags, "--max-moves", "6")[0] == 0
    code, out, err = rota_command(*flags, "--max-moves", "5")
    assert code == 1
    assert "loads" in out
    assert err == "rota: 6 partitions move, more than --max-moves 5\n"


#: A group that has used range and continues to do so.
MIGRATED = ("--members", "3", "--add", "1", "--from", "range", "--strategy", "range")


def test_max_downtime_is_an_exit_code(rota_command: RotaCommand) -> None:
    flags = ("plan", EXAMPLE, "--add", "1", "--strategy", "range")
    for limit in ("20", "20s", "1m", "0.5h"):
        assert rota_command(*flags, "--max-downtime", limit)[0] == 0
    code, out, err = rota_command(*flags, "--max-downtime", "19400ms")
    assert code == 1
    assert "21 revoked; expected downtime 19.4s" in out
    assert err == (
        "rota: the expected downtime is 19.4 partition-seconds, more than --max-downtime 19.4s\n"
    )
    _, _, err = rota_command("plan", "--partitions", "t=99", *MIGRATED, "--max-downtime", "60")
    assert err.endswith(" partition-seconds, more than --max-downtime 1m\n")
    code, _, err = rota_command(*flags, "--max-downtime", "1", "--max-moves", "3")
    assert (code, err.count("\n")) == (1, 2)


def test_expected_downtime_says_what_it_is_based_on(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    group = json.loads(Path(EXAMPLE).read_text())
    case = tmp_path / "case.json"
    change = ("--add", "1", "--strategy", "cooperative-sticky", "--solver", "exact")
    for settings, flags, interval, source in (
        ({}, (), 3_000, "Kafka's default"),
        ({"heartbeat.interval.ms": 1_000}, (), 1_000, "case file"),
        ({"heartbeat.interval.ms": 1_000}, ("--heartbeat", "500ms"), 500, "given"),
    ):
        case.write_text(json.dumps(group | {"settings": settings}))
        out = rota_command("plan", case, *change, *flags).checked().out
        assert f"note: expected downtime: with heartbeat.interval.ms={interval} ({source})" in out
        plan = plan_json(rota_command, str(case), *change, *flags)
        assert plan["downtime_ms"] == 4 * (interval + 20 + 25)
        assert plan["timing"]["heartbeat_interval_ms"] == interval
        assert plan["timing"]["sources"][0] == f"heartbeat.interval.ms={interval} ({source})"


def test_a_static_member_that_leaves(rota_command: RotaCommand, tmp_path: Path) -> None:
    group = json.loads(Path(EXAMPLE).read_text())
    for member in group["members"]:
        member["group_instance_id"] = f"static-{member['id']}"
    case = write_case_file(tmp_path, json.dumps(group))
    flags = ("--remove", "billing-2", "--strategy", "sticky")
    plan = plan_json(rota_command, case, *flags, "--session", "6s")
    assert plan["restart_downtime_ms"] == 5 * 3_000  # it has to be back within its session
    assert plan_json(rota_command, case, *flags)["downtime_ms"] - plan["downtime_ms"] == 5 * 39_000
    out = rota_command("plan", case, *flags).checked().out
    assert "wait for the end of its session, session.timeout.ms=45000 (Kafka's default)" in out
    assert "no rebalance happens, and the expected downtime is 50.0s" in out
    assert plan_json(rota_command, EXAMPLE, *flags)["restart_downtime_ms"] is None


def write_case_file(folder: Path, text: str) -> str:
    path = folder / "case.json"
    path.write_text(text)
    return str(path)


BAD_CASES = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "the file must be an object, not a list"),
    "no members": ('{"partitions": {}}', "members is missing"),
    "an unknown key": (
        '{"partitions": {}, "members": [], "rack": {}}',
        "rack is an unknown key: did you mean 'racks'?",
    ),
    "an unknown member key": (
        '{"partitions": {}, "members": [{"id": "a", "topics": [], "ownd": {}}]}',
        "members[0].ownd is an unknown key: did you mean 'owned'?",
    ),
    "a negative count": (
        '{"partitions": {"t": -1}, "members": []}',
        "partitions.t must not be negative: -1",
    ),
    "a count that is text": (
        '{"partitions": {"t": "3"}, "members": []}',
        "partitions.t must be a whole number, not a string",
    ),
    "topics as text": (
        '{"partitions": {}, "members": [{"id": "a", "topics": "t"}]}',
        "members[0].topics must be a list, not a string",
    ),
    "owned as a list": (
        '{"partitions": {}, "members": [{"id": "a", "topics": [], "owned": [1]}]}',
        "members[0].owned must be an object, not a list",
    ),
    "a partition that is true": (
        '{"partitions": {}, "members": [{"id": "a", "topics": [], "owned": {"t": [0, true]}}]}',
        "members[0].owned.t[1] must be a whole number, not True",
    ),
    "a member twice": (
        '{"partitions": {}, "members": [{"id": "a", "topics": []}, {"id": "a", "topics": []}]}',
        "member 'a' is listed twice",
    ),
    "an unknown setting": (
        '{"partitions": {}, "members": [], "settings": {"heartbeat.ms": 3}}',
        "settings.heartbeat.ms is an unknown key: did you mean 'heartbeat.interval.ms'?",
    ),
    "a heartbeat that is too long": (
        '{"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}], '
        '"settings": {"heartbeat.interval.ms": 50000}}',
        "heartbeat.interval.ms=50000 (case file) must be above 0 and below session.timeout.ms",
    ),
    "racks of an unknown topic": (
        '{"partitions": {}, "members": [], "racks": {"t": []}}',
        "racks['t']: no such topic in partitions",
    ),
    "a key twice": (
        '{"partitions": {"t": 1, "t": 2}, "members": []}',
        "an object has the key 't' twice",
    ),
    "user data that is not base64": (
        '{"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"], "user_data": "?"}]}',
        "members[0].user_data is not base64: '?'",
    ),
    "deeply nested": ("[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize(("text", "message"), BAD_CASES.values(), ids=BAD_CASES)
def test_a_bad_case_file(
    rota_command: RotaCommand, tmp_path: Path, text: str, message: str
) -> None:
    code, out, err = rota_command("plan", write_case_file(tmp_path, text))
    assert (code, out) == (4, "")
    assert message in err
    assert err.startswith("rota: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ((), 2, "give a case file, --group NAME, or --partitions"),
        (
            ("--partitions", "t=3"),
            2,
            "give a case file, --group NAME, or --partitions",
        ),
        ((EXAMPLE, "--members", "3"), 2, "--members cannot be combined with a case file"),
        (("--partitions", "a=1", "b=2", "--members", "3"), 2, "'b=2' is not a case file"),
        (
            ("--partitions", "a=1", "--member", "x=b"),
            4,
            "--member 'x=b': topic 'b' is not in the group",
        ),
        ((EXAMPLE, "--max-moves", "-1"), 2, "'-1' is not a whole number from 0"),
        ((EXAMPLE, "--add", "100000000"), 2, "is not a whole number from 0 to 100000"),
        (
            (EXAMPLE, "--compare", "--max-moves", "3"),
            2,
            "--max-moves needs one strategy: leave out --compare",
        ),
        (
            (EXAMPLE, "--compare", "--max-moves", "0"),
            2,
            "--max-moves needs one strategy: leave out --compare",
        ),
        (
            (EXAMPLE, "--compare", "--max-downtime", "3s"),
            2,
            "--max-downtime needs one strategy: leave out --compare",
        ),
        ((EXAMPLE, "--max-downtime", "x"), 2, "'x' is neither a number of seconds nor a time"),
        ((EXAMPLE, "--heartbeat", "0"), 4, "heartbeat.interval.ms=0 (given) must be above 0"),
        ((EXAMPLE, "--compare", "--prove"), 2, "--prove needs one strategy: leave out --compare"),
        ((EXAMPLE, "--compare", "--solver", "fast"), 4, "unknown solver 'fast'"),
        ((EXAMPLE, "--compare", "--all"), 2, "--all needs one strategy: leave out --compare"),
        (
            (str(ROOT / "examples" / "orders.jsonl"),),
            4,
            "orders.jsonl: several JSON values: this looks like a file of records for rota "
            "produce; rota plan needs a case file\n",
        ),
        (
            (EXAMPLE, "--compare", "--strategy", "range"),
            2,
            "--strategy range: --compare has every built-in strategy: leave out one of the two",
        ),
        (
            (EXAMPLE, "--compare", "--strategy", "org.apache.kafka.clients.consumer.RangeAssignor"),
            2,
            "RangeAssignor: --compare has every built-in strategy",
        ),
        (
            (EXAMPLE, "--from", "nonsense"),
            2,
            "--from: the case file has the partitions that members own; leave out --from",
        ),
        (
            ("--partitions", "t=2", "--members", "1", "--from", "nonsense"),
            4,
            "unknown strategy 'nonsense'",
        ),
        ((EXAMPLE, "--timeout", "5"), 2, "--config and --timeout need --group NAME"),
        (
            ("--partitions", "t=2,t=3", "--members", "1"),
            2,
            "--partitions 't=3': topic 't' is given twice",
        ),
        (
            (EXAMPLE, "--strategy", "rnage"),
            4,
            "'rnage': did you mean 'range'? known",
        ),
        ((EXAMPLE, "--solver", "fast"), 4, "unknown solver 'fast': known are exact, kafka"),
        ((EXAMPLE, "--remove", "C9"), 4, "--remove 'C9': no such member; members are billing-0"),
        ((EXAMPLE, "--partitions", "ordrs=99"), 4, "'ordrs': no member subscribes to that topic"),
        ((EXAMPLE, "--partitions", "t"), 2, "--partitions 't': must be TOPIC=N"),
        (
            ("--partitions", "orders=0", "--members", "2"),
            4,
            "--partitions 'orders=0': topic 'orders' has no partitions",
        ),
        (("--partitions", "t=3", "--members", "0"), 2, "--members: '0' is not a whole number from"),
        (
            (SCENARIO,),
            4,
            f"{SCENARIO}: not JSON: this looks like a scenario: rota simulate {SCENARIO}\n",
        ),
        ((EXAMPLE, "--partitions", "orders=-3"), 4, "-3 is negative"),
        (
            ("--stratgy", "sticky"),
            2,
            "rota plan: unknown option --stratgy: did you mean --strategy? "
            "rota plan --help lists all options\n",
        ),
        (("--xyzzy=1",), 2, "unknown option --xyzzy; rota plan --help lists all options\n"),
        ((EXAMPLE, "more"), 2, "unknown argument more; rota plan --help lists all arguments\n"),
        (("no-such-file.json",), 3, "no-such-file.json: No such file or directory"),
        ((str(ROOT),), 3, "Is a directory"),
    ],
)
def test_wrong_flags(
    rota_command: RotaCommand, flags: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = rota_command("plan", *flags)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('x')", "strategy 'mine': assign raised KeyError"),
        ("return None", "broke the rule 'a-result'"),
        ("return {}", "broke the rule 'all-members'"),
    ],
)
def test_a_strategy_of_the_users_that_fails(
    rota_command: RotaCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    message: str,
) -> None:
    name = f"failing_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(
        "import rota\n"
        "class Mine(rota.PartitionAssignor):\n"
        "    name = 'mine'\n"
        f"    def assign_partitions(self, partitions, subscriptions):\n        {body}\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, err = rota_command("plan", EXAMPLE, "--strategy", f"{name}:Mine")
    assert code == 4
    assert message in err
    assert err.count("\n") == 1


def test_a_member_joins_a_group_of_a_file(rota_command: RotaCommand) -> None:
    plan = plan_json(rota_command, EXAMPLE, "--member", "slim=refunds", "--strategy", "sticky")
    assert plan["assignment"]["slim"] == {"refunds": [0, 1, 2]}


def test_the_group_changes_its_strategy(rota_command: RotaCommand) -> None:
    flags = ("--partitions", "f=12,g=5", "--members", "3", "--from", "roundrobin")
    assert plan_json(rota_command, *flags, "--strategy", "cooperative-sticky")["moved"] == 0
    assert plan_json(rota_command, *flags, "--strategy", "range")["moved"] > 0


def test_a_strategy_that_only_rota_runs_has_rotas_solver(
    rota_command: RotaCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_sticky.py").write_text(
        "from rota.engine.assignors.sticky import CooperativeStickyAssignor\n"
        "class Mine(CooperativeStickyAssignor):\n"
        "    name = 'mine'\n"
    )
    monkeypatch.chdir(tmp_path)
    plan = plan_json(rota_command, EXAMPLE, "--add", "1", "--strategy", "mine_sticky:Mine")
    assert (plan["solver"], plan["solver_reason"]) == ("exact", "only Rota runs this strategy")
    assert plan["moved"] == 4
    java = "org.apache.kafka.clients.consumer.StickyAssignor"
    assert plan_json(rota_command, EXAMPLE, "--strategy", java)["solver"] == "kafka"


NO_MEMBERS = '{"partitions": {"t": 3}, "members": []}'
NO_PARTITIONS = '{"partitions": {"t": 0}, "members": [{"id": "a", "topics": ["t", "u"]}]}'


@pytest.mark.parametrize(
    ("case", "flags", "problem"),
    [
        (NO_MEMBERS, (), "the group has no members; add one with --member ID=TOPIC"),
        (
            NO_PARTITIONS,
            (),
            "the topics of the members have no partitions (t, u); --partitions t=N sets a number",
        ),
        (
            '{"partitions": {"t": 1}, "members": [{"id": "a", "topics": []}]}',
            (),
            "no member subscribes to a topic; --member ID=TOPIC adds a member that does",
        ),
        (
            '{"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]}',
            ("--remove", "a"),
            "the group has no members; leave out a --remove",
        ),
    ],
)
def test_a_gate_refuses_a_group_in_which_nothing_is_assigned(
    rota_command: RotaCommand, tmp_path: Path, case: str, flags: tuple[str, ...], problem: str
) -> None:
    words = ("plan", write_case_file(tmp_path, case), *flags)
    for limit in (("--max-moves", "0"), ("--max-downtime", "0")):
        checked = rota_command(*words, *limit)
        assert checked == (4, "", f"rota: nothing to check: {problem}\n")
    for more in ((), ("--compare",), ("--json",)):
        code, out, err = rota_command(*words, *more)
        assert (code, out, err) == (4, "", f"rota: nothing to plan: {problem}\n")


@pytest.mark.parametrize("case", [NO_MEMBERS, NO_PARTITIONS])
def test_a_gate_refuses_a_plan_in_which_nothing_can_move(
    rota_command: RotaCommand, tmp_path: Path, case: str
) -> None:
    added = ("--member", "b=t", "--partitions", "t=3")
    words = ("plan", write_case_file(tmp_path, case), *added)
    assert rota_command(*words).err == ""
    for command in (words, ("plan", "--partitions", "t=3", "--members", "2")):
        code, out, err = rota_command(*command, "--max-moves", "0")
        assert (code, out) == (4, "")
        assert err.startswith("rota: nothing to check: no member owns a partition, so none can")
        code, out, err = rota_command(*command, "--max-downtime", "0")
        assert (code, out) == (4, "")
        assert "no member owns a partition, so no downtime can be computed; add the" in err


def test_a_limit_of_downtime_is_not_for_a_migration(rota_command: RotaCommand) -> None:
    """The downtime of a migration is that of its restarts, which a plan does not have."""
    words = ("plan", "--partitions", "t=12", "--members", "4", "--from", "range", "--strategy")
    for limits in (("--max-downtime", "3"), ("--max-downtime", "3", "--max-moves", "3")):
        code, out, err = rota_command(*words, "cooperative-sticky", *limits)
        assert (code, out) == (4, "")
        assert err.startswith("rota: nothing to check: the downtime of a migration is that of its")
    rota_command(*words, "cooperative-sticky", "--max-moves", "3").checked()
    added = ("--add", "1", "--max-downtime", "1m")
    rota_command(*words, "range", *added).checked()
    _, out, _ = rota_command(*words[:-1], "--compare")
    note = "note: each row of another strategy is one rebalance after the migration from range"
    assert note in out


def test_json_of_a_cooperative_plan_has_both_ends(rota_command: RotaCommand) -> None:
    plan = plan_json(rota_command, EXAMPLE, "--add", "1", "--strategy", "cooperative-sticky")
    assert plan["assignment"]["new-1"] == {}
    assert sum(map(len, plan["target_assignment"]["new-1"].values())) == 4


@pytest.mark.parametrize(
    ("ids", "added"),
    [("ab", "new-1"), ("mn", "new-1"), ("no", "~new-1"), ("yz", "~new-1"), ("a~", "~new-1")],
)
def test_new_members_come_behind_all_others(
    ids: str, added: str, rota_command: RotaCommand, tmp_path: Path
) -> None:
    members = ", ".join(f'{{"id": "{each}", "topics": ["t"]}}' for each in ids)
    case = write_case_file(tmp_path, f'{{"partitions": {{"t": 4}}, "members": [{members}]}}')
    plan = plan_json(rota_command, case, "--add", "1", "--from", "range", "--strategy", "range")
    assert plan["assignment"] == {ids[0]: {"t": [0, 1]}, ids[1]: {"t": [2]}, added: {"t": [3]}}
    assert plan["moved"] == 1


def test_racks_are_counted(rota_command: RotaCommand, tmp_path: Path) -> None:
    case = write_case_file(
        tmp_path,
        '{"partitions": {"t": 2}, "racks": {"t": [["r1"], ["r2"]]}, "members": ['
        '{"id": "a", "topics": ["t"], "rack": "r2"}, {"id": "b", "topics": ["t"], "rack": "r1"}]}',
    )
    assert plan_json(rota_command, case, "--strategy", "sticky")["local"] == 2
    assert plan_json(rota_command, case, "--strategy", "roundrobin")["local"] == 0
    assert "2 in the rack of their member" in rota_command("plan", case, "--strategy", "range")[1]


def test_a_bug_is_told_from_a_limit(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(args: object) -> bool:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("rota.cli.plan.run", broken)
    code, _, err = rota_command("plan", EXAMPLE)
    assert (code, err.count("\n")) == (70, 1)
    assert "a bug in Rota: ZeroDivisionError" in err


@pytest.mark.parametrize("where", ["rota.cli.plan.run", "rota.cli.main.build_parser"])
def test_interrupted(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    assert rota_command("plan", EXAMPLE) == (130, "", "rota: interrupted\n")


def test_help_shows_examples_and_exit_codes(rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("plan", "--help")
    assert code == 0
    assert "examples:" in out
    assert "130  interrupted" in out


def test_names_are_printed_as_they_are(rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("plan", "--partitions", "[bold]t=2", "--member", "[red]:smile:")
    assert code == 0
    assert "[red]:smile:" in out
    assert "[bold]t 0-1" in out


def test_user_data_of_a_case_file_goes_to_the_strategy(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    data = encode_sticky_user_data(Partitions.of({"t": [1, 2]}), 3)
    members = [
        {"id": "a", "topics": ["t"]},
        {"id": "b", "topics": ["t"], "user_data": base64.b64encode(data).decode()},
    ]
    case = tmp_path / "case.json"
    case.write_text(json.dumps({"partitions": {"t": 4}, "members": members}))
    ran = rota_command("plan", str(case), "--strategy", "sticky", "--json").checked()
    assert json.loads(ran.out)["assignment"] == {"a": {"t": [0, 3]}, "b": {"t": [1, 2]}}
    rota_command("plan", str(case), "--strategy", "sticky", "--max-moves", "0").checked()


def test_content_in_a_file_of_another_name_is_recognized(
    rota_command: RotaCommand, tmp_path: Path
) -> None:
    scenario, case = tmp_path / "scenario.json", tmp_path / "case.toml"
    scenario.write_bytes(Path(SCENARIO).read_bytes())
    case.write_bytes(Path(EXAMPLE).read_bytes())
    hint = f"rota: {scenario}: not JSON: this looks like a scenario: rota simulate {scenario}\n"
    assert rota_command("plan", scenario) == (4, "", hint)
    hint = f"rota: {case}: not a scenario: this looks like a case file: rota plan {case}\n"
    assert rota_command("simulate", case) == (4, "", hint)
    assert rota_command("plan", case).code == rota_command("simulate", scenario).code == 0
    code, _, err = rota_command("plan", "-", stdin=Path(SCENARIO).read_bytes())
    assert (code, err.endswith("this looks like a scenario: rota simulate -\n")) == (4, True)


def test_a_plan_of_java_consumers_can_be_proved_wrong(rota_command: RotaCommand) -> None:
    flags = ("plan", EXAMPLE, "--add", "1", "--strategy", "cooperative-sticky", "--prove")
    assert "two members exchanged partitions of one topic" in rota_command(*flags).out
    assert "; --solver exact finds the best one\n" in rota_command(*flags).out
    assert "proof: no assignment is more even" in rota_command(*flags, "--solver", "exact").out


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (
            "sticky",
            "\n\nproof: no assignment is more even, and no equally even one moves fewer "
            "partitions (checked by separate code; see --json)\n",
        ),
        ("range", "proof: a better assignment exists: loads could be more even"),
    ],
)
def test_a_plan_is_proved(rota_command: RotaCommand, strategy: str, text: str) -> None:
    case = str(ROOT / "examples" / "orders.json")
    assert text in rota_command("plan", case, "--strategy", strategy, "--prove").checked().out
    ran = rota_command("plan", case, "--strategy", strategy, "--prove", "--json").checked()
    certificate = json.loads(ran.out)["certificate"]
    assert (certificate["flaw"] is None) is (strategy == "sticky")
    assert len(certificate["prices"]) == (4 if strategy == "sticky" else 0)


def test_a_strategy_with_a_memory_keeps_it_from_the_first_plan_to_the_second(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sizes = ("--partitions", "t0=2,t1=2,t2=2,t3=2", "--members", "3", "--remove", "C1", "--json")
    strategy = ("--strategy", "examples.sticky_2x:Sticky2x")
    plan = json.loads(rota_command("plan", *sizes, *strategy).checked().out)
    assert (plan["moved"], plan["needless"], plan["orphaned"], plan["balance_score"]) == (
        0,
        0,
        3,
        0,
    )
    plan = json.loads(rota_command("plan", *sizes, *strategy, "--from", "range").checked().out)
    assert plan["needless"] == 0
