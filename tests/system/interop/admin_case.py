"""Cases of administration: one client asks, another one looks at what has become of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clients.case import ClientCase, plain_record, unique_name
from tests.support.waiting import wait_until
from tests.system.interop.group_case import Group
from tests.system.interop.record_case import START


def create(client_case: ClientCase) -> None:
    topic = unique_name("t")
    configs = {"retention.ms": "123456", "cleanup.policy": "compact"}
    client_case.own.ask("create_topic", topic=topic, partitions=3, configs=configs)
    wait_until("it is there", lambda: topic in client_case.steady.ask("topics"))
    assert client_case.steady.ask("partitions", topic=topic) == 3
    assert configs.items() <= client_case.steady.ask("describe_config", topic=topic).items()


def list_topics(client_case: ClientCase) -> None:
    topics = {client_case.topic(1), client_case.topic(2)}
    wait_until("both are listed", lambda: topics <= set(client_case.own.ask("topics")))


def describe_topic(client_case: ClientCase) -> None:
    topic = client_case.topic(5)
    wait_until("it has five", lambda: client_case.own.ask("partitions", topic=topic) == 5)


def delete(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    client_case.own.ask("delete_topic", topic=topic)
    wait_until("it is gone", lambda: topic not in client_case.steady.ask("topics"))


def grow(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    client_case.own.ask("grow_topic", topic=topic, count=4)
    wait_until("it has grown", lambda: client_case.steady.ask("partitions", topic=topic) == 4)
    records = [plain_record(1, 3)]
    assert client_case.steady.ask("produce", topic=topic, records=records) == [[3, 0]]


def describe_config(client_case: ClientCase) -> None:
    topic = client_case.topic(1, **{"max.message.bytes": "65536"})
    found = client_case.own.ask("describe_config", topic=topic)
    assert found["max.message.bytes"] == "65536"
    assert found["cleanup.policy"] == "delete"
    assert found["compression.type"] == "producer"


def alter_config(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    client_case.own.ask("alter_config", topic=topic, key="retention.ms", value="98765")

    def altered() -> bool:
        found = client_case.steady.ask("describe_config", topic=topic)["retention.ms"]
        return bool(found == "98765")

    wait_until("it is altered", altered)


def create_group_with_commits(client_case: ClientCase) -> Group:
    group = Group(client_case, partitions=2)
    member = group.join(client_case.steady, manual=True)
    group.write()
    group.finish()
    client_case.steady.ask("commit", member=member, how="sync")
    return group


def groups(client_case: ClientCase) -> None:
    group = create_group_with_commits(client_case)
    assert group.name in client_case.own.ask("groups")
    assert client_case.own.ask("group", group=group.name) == {"state": "Stable", "members": 1}
    group.end()
    assert client_case.own.ask("group", group=group.name) == {"state": "Empty", "members": 0}


def delete_group(client_case: ClientCase) -> None:
    group = create_group_with_commits(client_case)
    group.end()
    client_case.own.ask("delete_group", group=group.name)
    assert group.name not in client_case.steady.ask("groups")


def offsets(client_case: ClientCase) -> None:
    group = create_group_with_commits(client_case)
    group.end()
    assert sorted(client_case.own.ask("offsets", group=group.name, topic=group.topic)) == [
        [0, 10],
        [1, 10],
    ]


def alter_offsets(client_case: ClientCase) -> None:
    group = create_group_with_commits(client_case)
    group.end()
    client_case.own.ask(
        "alter_offsets", group=group.name, topic=group.topic, offsets=[[0, 3], [1, 5]]
    )
    assert stored_offsets(client_case, group) == [[0, 3], [1, 5]]


def delete_offsets(client_case: ClientCase) -> None:
    group = create_group_with_commits(client_case)
    group.end()
    client_case.own.ask("delete_offsets", group=group.name, topic=group.topic, partitions=[0])
    assert stored_offsets(client_case, group) == [[1, 10]]


def stored_offsets(client_case: ClientCase, group: Group) -> list[list[int]]:
    return sorted(client_case.steady.ask("offsets", group=group.name, topic=group.topic))


def delete_records(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    records = [plain_record(number, 0) for number in range(10)]
    client_case.steady.ask("produce", topic=topic, records=records)
    client_case.own.ask("delete_records", topic=topic, offsets=[[0, 6]])
    assert client_case.steady.ask("log_offsets", topic=topic, partitions=1, at="earliest") == [
        [0, 6]
    ]
    left = client_case.steady.ask("read", topic=topic, partitions=1, count=4)
    assert [record["value"] for record in left] == ["6", "7", "8", "9"]


def log_offsets(client_case: ClientCase) -> None:
    topic = client_case.topic(2)
    records = [
        {**plain_record(number, number % 2), "timestamp": START + number * 1_000}
        for number in range(20)
    ]
    client_case.steady.ask("produce", topic=topic, records=records)

    def at(when: str | int) -> list[list[int]]:
        return sorted(client_case.own.ask("log_offsets", topic=topic, partitions=2, at=when))

    assert at("earliest") == [[0, 0], [1, 0]]
    assert at("latest") == [[0, 10], [1, 10]]
    assert at(START + 9_500) == [[0, 5], [1, 5]]
    assert at(START + 11_000) == [[0, 6], [1, 5]]


def cluster(client_case: ClientCase) -> None:
    found = client_case.own.ask("cluster")
    assert found["brokers"] == [client_case.stage.cluster.plain]
    assert found["id"] == client_case.steady.ask("cluster")["id"]
    assert found["id"]


CASES: dict[str, Callable[[ClientCase], None]] = {
    "create a topic": create,
    "list topics": list_topics,
    "describe a topic": describe_topic,
    "delete a topic": delete,
    "add partitions": grow,
    "describe configs": describe_config,
    "alter configs": alter_config,
    "list and describe groups": groups,
    "delete a group": delete_group,
    "list offsets of a group": offsets,
    "alter offsets": alter_offsets,
    "delete offsets": delete_offsets,
    "delete records": delete_records,
    "offsets of a log": log_offsets,
    "describe the cluster": cluster,
}
