"""Random days of a group, as scenario texts: the same seed gives the same day."""

from __future__ import annotations

from collections.abc import Callable

from rota.engine.simulator.seeded_random import SeededRandom

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
TOPICS = ('["a"]', '["b"]', '["a", "b"]')


def random_scenario(seed: int) -> str:
    """A group of a few members, and up to six things that happen to it within half an hour."""
    chance = SeededRandom(seed)
    members = chance.between(1, 6)
    events = "".join(_event(chance, members) for _ in range(chance.between(0, 6)))
    if chance.happens(0.3):
        events += (
            f'\n[[events]]\nat = "{chance.between(10, 1800)}s"\npartitions = {{a = 11, c = 2}}\n'
        )
    return f"""
duration = "{chance.between(31, 45)}m"
strategy = "{chance.pick(STRATEGIES)}"
metadata_max_age = "{chance.pick(("0s", "1m", "5m"))}"
heartbeat_drift = "{chance.pick(("0s", "20ms"))}"

[topics]
a = {chance.between(1, 8)}
b = {chance.between(1, 8)}

[network]
latency = "{chance.between(1, 40)}ms"
jitter = "{chance.between(0, 30)}ms"

[[members]]
name = "m"
count = {members}
static = {chance.pick(("true", "false"))}
heartbeat = "{chance.pick(("1s", "2s", "2500ms", "3s"))}"
session = "{chance.pick(("10s", "30s", "45s"))}"
processing = "{chance.pick(("0s", "0s", "700ms", "3s", "20s"))}"
listener = "{chance.pick(("0s", "50ms", "2s"))}"
apart = "{chance.pick(("0s", "1s", "7s"))}"

[[members]]
name = "x"
topics = ["a"]
processing = "{chance.pick(("0s", "1s", "3s", "4500ms"))}"
heartbeat = "{chance.pick(("2s", "3s"))}"
max_poll = "{chance.pick(("1m", "5m"))}"
auto_commit = {chance.pick(("true", "false", "false"))}
{events}"""


def _event(chance: SeededRandom, members: int) -> str:
    who = chance.pick(("m", "x", f"m-{chance.below(members)}", f"m-{chance.below(members)}"))
    kinds: tuple[Callable[[], str], ...] = (
        lambda: f'leave = "{who}"',
        lambda: f'crash = "{who}"',
        lambda: f'stall = "{who}"\nfor = "{chance.between(1, 400)}s"',
        lambda: f'pause = "{who}"\nfor = "{chance.between(1, 200)}s"',
        lambda: (
            f'slow = "{who}"\nprocessing = "{chance.between(1, 90)}s"\n'
            f'for = "{chance.between(1, 600)}s"'
        ),
        lambda: f'restart = "{who}"\ndown = "{chance.between(1, 60)}s"',
        lambda: (
            f'deploy = "m"\ndown = "{chance.between(1, 20)}s"\n'
            f'between = "{chance.between(1, 60)}s"\nsurge = {chance.pick(("true", "false"))}'
        ),
        lambda: f'subscribe = "x"\ntopics = {chance.pick(TOPICS)}',
        lambda: f'join = "m-{members + chance.below(3)}"',
        lambda: f'coordinator_down = "{chance.between(1, 60)}s"',
    )
    return f'\n[[events]]\nat = "{chance.between(10, 1800)}s"\n{chance.pick(kinds)()}\n'
