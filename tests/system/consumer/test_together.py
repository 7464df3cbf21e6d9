"""Groups of Rota's members and of others', against both brokers.

The cases that were chosen run side by side, for most of their time is waiting; each test waits for
its own. They come last, for a Kafka that is killed takes the longer to be back the more topics it
has.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.system.consumer import member_case, mix_case, position_case, presence_case, topic_case
from tests.system.consumer.client_drivers import ClientDrivers
from tests.system.consumer.cluster import Cluster
from tests.system.consumer.group import GroupCase

CASES = {
    **mix_case.CASES,
    **member_case.CASES,
    **topic_case.CASES,
    **presence_case.CASES,
    **position_case.CASES,
}
AT_ONCE = 5


@pytest.fixture(scope="module")
def case_futures(
    request: pytest.FixtureRequest, cluster: Cluster, drivers: ClientDrivers
) -> Iterator[dict[str, Future[None]]]:
    """What each chosen test waits for, by the test's name."""
    pool = ThreadPoolExecutor(AT_ONCE)
    chosen = {item.name for item in request.session.items}
    names = {f"test_a_group[{cluster.name}-{case}]": case for case in CASES}

    def play(case: str) -> None:
        with GroupCase(cluster, drivers) as group_case:
            CASES[case](group_case)

    yield {name: pool.submit(play, case) for name, case in names.items() if name in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES)
def test_a_group(
    case: str, case_futures: dict[str, Future[None]], request: pytest.FixtureRequest
) -> None:
    """What the case has asserted, in a thread of its own, is raised here."""
    case_futures[request.node.name].result()
