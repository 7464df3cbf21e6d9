"""The script's part on topics, settings and the cluster: every version, good and bad arguments."""

from __future__ import annotations

import struct
from uuid import UUID

from rota.protocol.messages import CLIENT_ONLY_APIS, Api
from tests.support.differential_side import Message, Plain, Side

NOBODY = UUID(int=0)
UNKNOWN = UUID(int=12345)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
APIS = frozenset(map(int, Api)) - CLIENT_ONLY_APIS


def topic_request(name: str, partitions: int = 1, factor: int = 1, **more: Plain) -> Plain:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": more.pop("assignments", []),
        "configs": configs,
    }


def ask_create(side: Side, version: int, case: str, *topics: Plain, only: bool = False) -> Message:
    return side.ask(
        "CreateTopics", version, case, topics=list(topics), timeout_ms=30_000, validate_only=only
    )


def create_topics(side: Side, *topics: Plain) -> None:
    """Topics that later steps need; none of them is there already."""
    made = side.quiet("CreateTopics", 7, topics=list(topics), timeout_ms=30_000)
    assert all(each.error_code == 0 for each in made.topics), made
    for each in made.topics:
        side.names[str(each.topic_id)] = f"id of {each.name}"
        wait_for_topic(side, each.name, each.num_partitions)
        wait_for_partitions(side, each.name, each.num_partitions)


def describe_topic(side: Side, name: str) -> Message:
    answer = side.quiet(
        "Metadata", 12, topics=[{"name": name, "topic_id": None}], allow_auto_topic_creation=False
    )
    return answer.topics[0]


def wait_for_topic(side: Side, name: str, partitions: int = 1) -> None:
    """A broker learns of a new topic a little after its controller."""
    side.eventually(
        lambda: len(describe_topic(side, name).partitions) >= partitions, f"topic {name} to appear"
    )


def wait_for_partitions(side: Side, name: str, partitions: int) -> None:
    """And a little later has its partitions."""
    asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]

    def ready() -> bool:
        topics = [{"name": name, "partitions": asked}]
        answer = side.quiet("ListOffsets", 1, replica_id=-1, topics=topics)
        return all(each.error_code == 0 for each in answer.topics[0].partitions)

    side.eventually(ready, f"topic {name} to be served")


def wait_for_deletion(side: Side, name: str) -> None:
    side.eventually(lambda: describe_topic(side, name).error_code == 3, f"topic {name} to vanish")


def find_topic_id(side: Side, name: str) -> UUID:
    return UUID(str(describe_topic(side, name).topic_id))


def versions(side: Side) -> None:
    for version in range(3):
        note_versions(side, side.quiet("ApiVersions", version), version)
    for version in (3, 4):
        answer = side.quiet(
            "ApiVersions",
            version,
            client_software_name="script",
            client_software_version="1.0",
        )
        note_versions(side, answer, version)
    for name, number in (("", "1"), ("script", ""), ("-a", "1"), ("a b", "1"), ("ok", "v!")):
        side.ask_for_bytes(
            "ApiVersions",
            3,
            f"software {name!r} {number!r}",
            client_software_name=name,
            client_software_version=number,
        )
    body = b"\0" + b"\7script" + b"\0041.0" + b"\0"
    for version in (5, 99, 32_767):
        head = struct.pack(">hhih", 18, version, 7, -1)
        side.raw(f"ApiVersions v{version}", head + body, lambda answer: answer.hex())
        side.raw(f"ApiVersions v{version}, no body", head + b"\0", lambda answer: answer.hex())
    side.raw("ApiVersions v-1", struct.pack(">hhih", 18, -1, 7, -1), lambda answer: answer.hex())


def note_versions(side: Side, answer: Message, version: int) -> None:
    """Of the APIs that Rota has; Kafka has others besides."""
    side.note(f"ApiVersions v{version} | error", answer.error_code)
    for each in answer.api_keys:
        if each.api_key in APIS:
            side.note(
                f"ApiVersions v{version} | key {each.api_key}", [each.min_version, each.max_version]
            )


def unknown_apis(side: Side) -> None:
    """What no broker offers."""
    for key, version in ((0, 99), (3, 14), (3, -1), (999, 0), (-1, 0)):
        head = struct.pack(">hhih", key, version, 7, -1) + b"\0" * (version > 5)
        side.raw(f"API {key} v{version}", head, lambda answer: answer.hex())
    for name, frame in (
        ("nothing", b""),
        ("a short head", b"\0\3\0"),
        ("no body", b"\0\3\0\5\0\0\0\1\0\0"),
    ):
        side.raw(name, frame, lambda answer: answer.hex())
    side.ask("SaslHandshake", 0, "where nobody logs in", mechanism="PLAIN")
    side.ask("SaslHandshake", 1, "where nobody logs in", mechanism="PLAIN")
    for version in range(3):
        side.ask("SaslAuthenticate", version, "where nobody logs in", auth_bytes=b"\0a\0b")


def metadata(side: Side) -> None:
    create_topics(
        side, topic_request("meta-a", 2), topic_request("meta-b"), topic_request("meta.dots")
    )
    for version in range(14):
        names = [{"name": "meta-a"}, {"name": "meta-b"}]
        flags: Plain = {"allow_auto_topic_creation": False} if version >= 4 else {}
        if version >= 1:
            side.ask("Metadata", version, "none", topics=[], **flags)
        side.ask("Metadata", version, "two", topics=names, **flags)
        side.ask("Metadata", version, "twice", topics=[names[0], names[0]], **flags)
        for bad in ("absent", "", ".", "a b", "meta_dots", "x" * 250):
            side.ask("Metadata", version, f"{bad[:9]!r}", topics=[{"name": bad}], **flags)
        if version >= 8:
            side.ask(
                "Metadata",
                version,
                "operations",
                topics=names[:1],
                include_topic_authorized_operations=True,
                **({"include_cluster_authorized_operations": True} if version <= 10 else {}),
                **flags,
            )
    for version in (10, 11, 12, 13):
        flags = {"allow_auto_topic_creation": False}
        known, name = find_topic_id(side, "meta-a"), {"name": "meta-b", "topic_id": NOBODY}
        by_id = {"name": None, "topic_id": known}
        unknown = {"name": None, "topic_id": UNKNOWN}
        side.ask("Metadata", version, "by id", topics=[by_id], **flags)
        side.ask("Metadata", version, "by ids", topics=[by_id, unknown], **flags)
        side.ask("Metadata", version, "by id and name", topics=[by_id, name], **flags)
        side.ask(
            "Metadata", version, "both", topics=[{"name": "meta-b", "topic_id": known}], **flags
        )
        side.ask("Metadata", version, "no id", topics=[{"name": None, "topic_id": NOBODY}], **flags)


def creation(side: Side) -> None:
    for version in range(2, 8):
        name = f"made-{version}"
        ask_create(side, version, "checked only", topic_request(name, 3), only=True)
        ask_create(side, version, "new", topic_request(name, 3, configs={"retention.ms": "1000"}))
        wait_for_topic(side, name)
        ask_create(side, version, "again", topic_request(name, 3))
        ask_create(
            side,
            version,
            "twice",
            topic_request("two"),
            topic_request("two"),
            topic_request("bad name"),
        )
        ask_create(side, version, "none")
        for count, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (0, 0), (1, 32_767)):
            ask_create(side, version, f"{count} x {factor}", topic_request("odd", count, factor))
        for bad in ("", ".", "..", "a b", "x" * 250, "made_" + "x" * 245, "__cluster_metadata"):
            ask_create(side, version, f"called {bad[:12]!r}", topic_request(bad))
        if version >= 4:
            ask_create(
                side, version, "by default", topic_request(f"default-{version}", -1, -1), only=True
            )
    ask_create(side, 7, "10,001 partitions", topic_request("huge", 10_001))
    ask_create(
        side,
        7,
        "two that are too many",
        topic_request("huge-1", 6_000),
        topic_request("huge-2", 6_000),
    )
    create_topics(side, topic_request("col.li_sion"))
    ask_create(side, 7, "collides", topic_request("col_li.sion"), topic_request("col.li.sion"))
    ask_create(side, 7, "internal by name", topic_request("__transaction_state"), only=True)


def assignment(side: Side) -> None:
    def by_hand(*replicas: list[int], first: int = 0) -> list[Plain]:
        return [
            {"partition_index": first + at, "broker_ids": ids} for at, ids in enumerate(replicas)
        ]

    for case, found in {
        "good": topic_request("hand", -1, -1, assignments=by_hand([1], [1])),
        "counted": topic_request("hand", 2, -1, assignments=by_hand([1], [1])),
        "with a factor": topic_request("hand", -1, 1, assignments=by_hand([1], [1])),
        "unknown broker": topic_request("hand", -1, -1, assignments=by_hand([7])),
        "two brokers": topic_request("hand", -1, -1, assignments=by_hand([1, 7])),
        "the same twice": topic_request("hand", -1, -1, assignments=by_hand([1, 1])),
        "no broker": topic_request("hand", -1, -1, assignments=by_hand([])),
        "not from 0": topic_request("hand", -1, -1, assignments=by_hand([1], first=1)),
        "a partition twice": topic_request(
            "hand", -1, -1, assignments=[*by_hand([1]), *by_hand([1])]
        ),
    }.items():
        ask_create(side, 7, case, found, only=True)


SETTINGS = {
    "unknown": {"no.such.key": "1"},
    "no number": {"retention.ms": "abc"},
    "too low": {"retention.ms": "-2"},
    "too high": {"retention.ms": "9223372036854775808"},
    "blank": {"retention.ms": ""},
    "spaced": {"retention.ms": " 5 "},
    "policy": {"cleanup.policy": "compact,delete"},
    "policy, other order": {"cleanup.policy": "delete, compact"},
    "no policy": {"cleanup.policy": ""},
    "bad policy": {"cleanup.policy": "shrink"},
    "policy twice": {"cleanup.policy": "delete,delete"},
    "time type": {"message.timestamp.type": "LogAppendTime"},
    "bad time type": {"message.timestamp.type": "logappendtime"},
    "ratio": {"min.cleanable.dirty.ratio": "0.25"},
    "bad ratio": {"min.cleanable.dirty.ratio": "2"},
    "small segments": {"segment.bytes": "100"},
    "segments": {"segment.bytes": "1048576"},
    "lags": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    "true": {"unclean.leader.election.enable": "true"},
    "maybe": {"unclean.leader.election.enable": "maybe"},
    "remote": {"remote.storage.enable": "true"},
    "tests only": {"internal.segment.bytes": "100"},
    "null": {"retention.ms": None},
    "in sync": {"min.insync.replicas": "1"},
    "in sync 0": {"min.insync.replicas": "0"},
    "two in sync": {"min.insync.replicas": "2"},
    "packed": {"compression.type": "lz4"},
    "as it comes": {"compression.type": "producer"},
    "unknown codec": {"compression.type": "rar"},
    "level": {"compression.gzip.level": "9"},
    "bad level": {"compression.gzip.level": "10"},
    "local": {"local.retention.ms": "5"},
    "throttled": {"leader.replication.throttled.replicas": "*"},
    "badly throttled": {"leader.replication.throttled.replicas": "a:b"},
    "unbounded": {"retention.bytes": "-1"},
    "less than unbounded": {"retention.bytes": "-5"},
}


def settings(side: Side) -> None:
    for case, configs in SETTINGS.items():
        ask_create(side, 7, f"with {case}", topic_request("tuned", configs=configs), only=True)
    own = {"retention.ms": " 5000 ", "cleanup.policy": "compact, delete", "segment.ms": "7"}
    create_topics(side, topic_request("tuned", configs=own), topic_request("plain"))
    everything: Plain = {"include_synonyms": True}
    for version in range(1, 5):
        more = {**everything, "include_documentation": True} if version >= 3 else everything
        for case, kind, name, keys in (
            ("topic", TOPIC, "tuned", None),
            ("plain topic", TOPIC, "plain", None),
            ("two keys", TOPIC, "tuned", ["retention.ms", "cleanup.policy", "no.such.key"]),
            ("no keys", TOPIC, "tuned", []),
            ("absent", TOPIC, "absent", None),
            ("bad name", TOPIC, "a b", None),
            ("empty name", TOPIC, "", None),
            ("all brokers", BROKER, "", None),
            ("another broker", BROKER, "7", None),
            ("no broker", BROKER, "x", None),
            ("broker", BROKER, "1", ["num.partitions", "log.retention.ms", "node.id"]),
            ("no kind", 0, "x", None),
            ("unknown kind", 77, "x", None),
        ):
            asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            side.ask("DescribeConfigs", version, case, resources=[asked], **more)
        asked = {"resource_type": TOPIC, "resource_name": "tuned", "configuration_keys": None}
        side.ask("DescribeConfigs", version, "without synonyms", resources=[asked])
        side.ask("DescribeConfigs", version, "nothing", resources=[])


def fetch_topic_config(side: Side, name: str) -> dict[str, str]:
    asked = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    (found,) = side.quiet("DescribeConfigs", 4, resources=[asked]).results
    return {each.name: each.value for each in found.configs if each.config_source == 1}


def wait_for_metadata(side: Side) -> None:
    """A broker learns of changes after its controller, in order: once of the last, of all."""
    mark = str(len(side.answers) + 1)
    change = {"name": "flush.messages", "value": mark, "config_operation": SET}
    resource = {"resource_type": TOPIC, "resource_name": "marked", "configs": [change]}
    side.quiet("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    side.eventually(
        lambda: fetch_topic_config(side, "marked") == {"flush.messages": mark},
        "a change to be known",
    )


def note_topic_config(side: Side, name: str, case: str) -> None:
    """What a topic's own settings are by now."""
    wait_for_metadata(side)
    side.note(f"settings of {name} | {case}", fetch_topic_config(side, name))


def alteration(side: Side) -> None:
    create_topics(side, topic_request("altered"), topic_request("marked"))

    def change(key: str, value: str | None, operation: int = SET) -> Plain:
        return {"name": key, "value": value, "config_operation": operation}

    def alter(version: int, case: str, *changes: Plain, only: bool = False, **where: Plain) -> None:
        resource = {
            "resource_type": where.get("kind", TOPIC),
            "resource_name": where.get("name", "altered"),
            "configs": list(changes),
        }
        times = where.get("times", 1)
        side.ask(
            "IncrementalAlterConfigs",
            version,
            case,
            resources=[resource] * times,
            validate_only=only,
        )

    for version in (0, 1):
        alter(version, "set", change("retention.ms", "1"), change("segment.ms", "100"))
        note_topic_config(side, "altered", f"set {version}")
        alter(version, "delete", change("segment.ms", None, DELETE))
        alter(version, "delete what is not", change("flush.ms", None, DELETE))
        alter(version, "delete what there is not", change("no.such", None, DELETE))
        note_topic_config(side, "altered", f"deleted {version}")
        alter(version, "append", change("cleanup.policy", "compact", APPEND))
        note_topic_config(side, "altered", f"appended {version}")
        alter(version, "append again", change("cleanup.policy", "compact", APPEND))
        alter(version, "subtract", change("cleanup.policy", "delete", SUBTRACT))
        note_topic_config(side, "altered", f"subtracted {version}")
        alter(version, "append to no list", change("retention.ms", "1", APPEND))
        alter(version, "append nonsense", change("cleanup.policy", "shrink", APPEND))
        alter(version, "checked only", change("retention.ms", "77"), only=True)
        alter(version, "checked only, bad", change("retention.ms", "x"), only=True)
        alter(version, "null", change("retention.ms", None))
        alter(version, "unknown", change("no.such", "1"))
        alter(version, "bad beside good", change("segment.ms", "9"), change("retention.ms", "x"))
        alter(version, "a key twice", change("segment.ms", "9"), change("segment.ms", "10"))
        alter(version, "twice", change("segment.ms", "9"), times=2)
        alter(version, "no operation", change("segment.ms", "9", 9))
        alter(version, "nothing")
        alter(version, "absent", change("segment.ms", "9"), name="absent")
        alter(version, "absent and bad", change("segment.ms", "x"), name="absent")
        alter(version, "bad name", change("segment.ms", "9"), name="a b")
        alter(version, "no name", change("segment.ms", "9"), name="")
        alter(version, "another broker", change("segment.ms", "9"), kind=BROKER, name="7")
        alter(version, "unknown kind", change("a", "9"), kind=77)
        note_topic_config(side, "altered", f"at last {version}")
        alter(version, "clean", change("cleanup.policy", None, DELETE))

    def replace(version: int, case: str, only: bool = False, **configs: Plain) -> None:
        name = configs.pop("topic", "altered")
        listed = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": listed}
        side.ask("AlterConfigs", version, case, resources=[resource], validate_only=only)

    for version in range(3):
        replace(version, "replace", retention_ms="5", segment_ms="100")
        note_topic_config(side, "altered", f"replaced {version}")
        replace(version, "checked only", only=True, flush_ms="1")
        replace(version, "bad", retention_ms="x")
        replace(version, "null", retention_ms=None)
        replace(version, "unknown", no_such="1")
        replace(version, "absent", topic="absent", retention_ms="5")
        replace(version, "nothing")
        note_topic_config(side, "altered", f"replaced by nothing {version}")


def growth(side: Side) -> None:
    create_topics(side, topic_request("grows"))

    def grow(version: int, case: str, count: int, name: str = "grows", **more: Plain) -> None:
        asked = {"name": name, "count": count, "assignments": more.get("assignments")}
        side.ask(
            "CreatePartitions",
            version,
            case,
            topics=[asked] * more.get("times", 1),
            timeout_ms=30_000,
            validate_only=more.get("only", False),
        )

    for version in range(4):
        count = 2 + version
        grow(version, "checked only", count, only=True)
        grow(version, "more", count)
        wait_for_topic(side, "grows", count)
        grow(version, "as many", count)
        grow(version, "fewer", 1)
        grow(version, "none", 0)
        grow(version, "less than none", -3)
        grow(version, "absent", 5, "absent")
        grow(version, "bad name", 5, "a b")
        grow(version, "twice", 9, times=2)
        grow(version, "assigned", count + 1, assignments=[{"broker_ids": [1]}], only=True)
        grow(version, "badly assigned", count + 1, assignments=[{"broker_ids": [9]}], only=True)
        grow(version, "too few assigned", count + 2, assignments=[{"broker_ids": [1]}], only=True)
        side.ask(
            "CreatePartitions", version, "nothing", topics=[], timeout_ms=1, validate_only=True
        )


def deletion(side: Side) -> None:
    for version in range(1, 6):
        name = f"gone-{version}"
        create_topics(side, topic_request(name, 2))
        side.ask("DeleteTopics", version, "two", topic_names=[name, "absent"], timeout_ms=30_000)
        wait_for_deletion(side, name)
        side.ask("DeleteTopics", version, "again", topic_names=[name], timeout_ms=30_000)
        side.ask("DeleteTopics", version, "twice", topic_names=["x", "x"], timeout_ms=30_000)
        side.ask("DeleteTopics", version, "bad name", topic_names=["a b"], timeout_ms=30_000)
        side.ask("DeleteTopics", version, "nothing", topic_names=[], timeout_ms=30_000)
    create_topics(side, topic_request("by-name"), topic_request("by-id"), topic_request("by-both"))

    def delete(case: str, *topics: tuple[str | None, UUID]) -> None:
        asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
        side.ask("DeleteTopics", 6, case, topics=asked, timeout_ms=30_000)

    first, second = find_topic_id(side, "by-id"), find_topic_id(side, "by-both")
    delete("neither", (None, NOBODY))
    delete("both", ("by-both", second))
    delete("name and id apart", ("by-both", NOBODY), (None, second))
    delete("an id twice", (None, first), (None, first))
    delete("unknown id", (None, UNKNOWN))
    delete("by name and id", ("by-name", NOBODY), (None, first))
    wait_for_deletion(side, "by-name")
    delete("gone", ("by-name", NOBODY), (None, first))
    create_topics(side, topic_request("by-name"))
    side.ask(
        "Metadata",
        12,
        "an id that is gone",
        topics=[{"name": None, "topic_id": first}],
        allow_auto_topic_creation=False,
    )


def cluster(side: Side) -> None:
    for version in range(3):
        side.ask("DescribeCluster", version)
        side.ask(
            "DescribeCluster", version, "operations", include_cluster_authorized_operations=True
        )
        if version >= 1:
            for kind in (1, 2, 3):
                side.ask("DescribeCluster", version, f"endpoints {kind}", endpoint_type=kind)
        if version >= 2:
            side.ask("DescribeCluster", version, "fenced too", include_fenced_brokers=True)
    create_topics(side, topic_request("moves", 2))
    for case, asked in {
        "all": None,
        "one": [{"name": "moves", "partition_indexes": [0, 1]}],
        "absent": [{"name": "absent", "partition_indexes": [0]}],
        "nothing": [],
    }.items():
        side.ask("ListPartitionReassignments", 0, case, timeout_ms=1000, topics=asked)


def partitions(side: Side) -> None:
    create_topics(
        side, topic_request("parts-a", 5), topic_request("parts-b", 2), topic_request("parts-c", 1)
    )
    names = [{"name": name} for name in ("parts-c", "parts-a", "parts-b")]

    def describe(case: str, topics: list[Plain], limit: int, cursor: Plain = None) -> None:
        side.ask(
            "DescribeTopicPartitions",
            0,
            case,
            topics=topics,
            response_partition_limit=limit,
            cursor=cursor,
        )

    describe("all three", names, 2000)
    for limit in (-1, 0, 1, 4, 5, 6, 7, 8):
        describe(f"{limit} at most", names, limit)
    for name, number in (
        ("parts-a", 3),
        ("parts-a", 5),
        ("parts-a", 9),
        ("parts-b", 0),
        ("parts-b", -1),
    ):
        describe(f"from {name} {number}", names, 3, {"topic_name": name, "partition_index": number})
    describe("from what is not asked", names, 3, {"topic_name": "parts-aa", "partition_index": 0})
    describe("absent", [{"name": "absent"}, *names], 2000)
    describe("bad", [{"name": "a b"}], 2000)
    describe("long", [{"name": "x" * 250}], 2000)
    describe("empty", [{"name": ""}], 2000)
    describe("twice", [*names, *names], 2000)


SECTIONS = {
    "versions": versions,
    "strangers": unknown_apis,
    "metadata": metadata,
    "creation": creation,
    "assignment": assignment,
    "settings": settings,
    "alteration": alteration,
    "growth": growth,
    "deletion": deletion,
    "cluster": cluster,
    "partitions": partitions,
}
