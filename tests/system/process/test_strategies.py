"""What holds for every strategy and every group."""

from __future__ import annotations

from tests.support.process import environment, run_python

HASH_SEED_SCRIPT = """
import json, random, rota
dice = random.Random(7)
topics = {f"topic-{n}": dice.randrange(1, 9) for n in range(12)}
members = [
    rota.Member(id=f"m{n}", topics=dice.sample(sorted(topics), dice.randrange(1, 9)),
                owned={t: [dice.randrange(9)] for t in dice.sample(sorted(topics), 4)},
                generation=dice.randrange(4), rack=dice.choice([None, "r1", "r2"]))
    for n in range(15)]
racks = {t: [[dice.choice(["r1", "r2"])] for _ in range(c)] for t, c in topics.items()}
for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky"):
    for solver in ("exact", "kafka"):
        for known in (None, racks):
            plan = rota.assign(strategy, topics, members, solver=solver, racks=known)
            print(json.dumps([plan.to_dict(), plan.notes, plan.moves_needed]))
"""


def test_the_hash_seed_does_not_matter() -> None:
    printed = [
        run_python(HASH_SEED_SCRIPT, env=environment(PYTHONHASHSEED=seed)).checked().out
        for seed in ("0", "1", "4711")
    ]
    assert printed[0]
    assert len(set(printed)) == 1
