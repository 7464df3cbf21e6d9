"""Where Rota's broker means to answer otherwise than Kafka's: each difference by name.

``where`` is found in a step's label and the path of a field in its answer. The reasons stand in
docs/differences.md under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.differential_side import Plain

Check = Callable[[Plain, Plain], bool]


def accept_any(_: Plain, __: Plain) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Difference:
    """What is expected to differ."""

    name: str
    where: str
    #: Of what Rota and Kafka have there.
    check: Check = accept_any

    def covers(self, label: str, path: str, ours: Plain, theirs: Plain) -> bool:
        return re.search(self.where, f"{label} :: {path}") is not None and self.check(ours, theirs)


def expect_values(ours: Plain, theirs: Plain) -> Check:
    return lambda rota, kafka: (rota, kafka) == (ours, theirs)


DIFFERENCES = (
    Difference(
        "additional error messages",
        r"error_message$",
        lambda ours, theirs: ours == "a text" and not theirs,
    ),
    Difference(
        "commits by topic id",
        r"ApiVersions v\d \| key [89] ::",
        lambda ours, theirs: (ours[1], theirs[1]) == (9, 10),
    ),
    Difference(
        "a topic without name and id",
        r"Metadata v1[23] \| no id :: .*(topics|error_code)",
    ),
    Difference(
        "an empty name",
        r"DescribeTopicPartitions v0 \| empty :: .*(error_code|operations)$",
    ),
    Difference(
        "no cluster-wide settings",
        r"min\.insync\.replicas\]\.config_source$",
        expect_values(5, 3),
    ),
    Difference("no cluster-wide settings", r"DescribeConfigs v\d \| all brokers :: .*min\.insync"),
    Difference(
        "refused topic settings",
        r"CreateTopics v7 \| with (two in sync|packed) ::",
        lambda ours, theirs: "absent" in (ours, theirs),
    ),
    Difference(
        "read-only broker settings", r"\| broker :: .*\.read_only$", expect_values(True, False)
    ),
    Difference(
        "a default in the configuration",
        r"\| broker :: .*\[node\.id\].*ource$",
        expect_values(5, 4),
    ),
    Difference(
        "no documentation of broker settings",
        r"\| broker :: .*\.documentation$",
        expect_values(None, "a text"),
    ),
    Difference("an unknown operation", r"no operation :: .*error_code$", expect_values(42, -1)),
    Difference(
        "an unknown codec", r"Produce v9 \| codec [57] :: .*error_code", expect_values(76, -1)
    ),
    Difference(
        "append time set by a producer",
        r"Produce v9 \| append time :: .*(error_code|base_offset)",
    ),
    Difference(
        "records inside a batch",
        r"Produce v9 \| a record: .* :: .*(error_code|base_offset)$",
        lambda ours, theirs: (ours, theirs) in {(0, 87), (0, -1)},
    ),
    Difference("an unknown isolation level", r"Fetch v\d+ \| isolation 2 ::"),
    Difference(
        "whole batches",
        r"Fetch v\d+ \| three, few bytes :: .*partitions\[1\]\.records\[0\]$",
        lambda ours, theirs: theirs == "absent",
    ),
    Difference(
        "no fetch sessions", r"Fetch v\d+ \| a session :: .*session_id$", lambda ours, _: ours == 0
    ),
    Difference("no replicas", r"Fetch v12 \| a replica ::"),
    Difference("no transactions", r"FindCoordinator v\d \| kind 1 ::"),
    Difference(
        "a negative committed offset",
        r"OffsetFetch v\d .*partitions\[1\]\.metadata$",
        expect_values("", "note"),
    ),
)


def find_difference(label: str, path: str, ours: Plain, theirs: Plain) -> str | None:
    """The name of an expected difference; None if there is none."""
    for each in DIFFERENCES:
        if each.covers(label, path, ours, theirs):
            return each.name
    return None
