"""Plays cases on both sides."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import batched

from rota.model.reply import DescribeGroupsReply, FetchOffsetsReply, JoinReply, ListGroupsReply
from rota.model.request import FetchOffsets
from tests.kafka.coordinator.actor import CONFIG
from tests.kafka.coordinator.difference import expected_of_kafka
from tests.kafka.coordinator.live import Live
from tests.kafka.coordinator.node import Node
from tests.kafka.coordinator.question import QUESTIONS
from tests.kafka.coordinator.stage import Side, Stage, Step, first_difference
from tests.kafka.coordinator.state import STATES

