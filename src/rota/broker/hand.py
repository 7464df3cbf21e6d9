"""What a test sees of a broker that runs, and does to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from rota.broker import argument, inside
from rota.broker.clock import Clock
from rota.broker.fault import Order, api_of, code_of
from rota.broker.inside import Group, Headers, Record, Text
from rota.broker.node import Node
from rota.errors import Code
from rota.model.topic import TopicPartition

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds that what is waited for has to happen."""
PAUSE = 0.005


class Hand:
    """A test's hand on a broker: its topics, records and groups, and faults on order."""

    _clock: Clock

    def _run(self, act: Callable[[Node], T]) -> T:
        """What this gives where the node is."""
        raise NotImplementedError

    # Topics and records

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Makes a topic.

        :param partitions: num.partitions, 1 by default
        :param config: settings of its own, under Kafka's names
        :raises Refused: it exists, or cannot be made so
        """
        self._run(
            lambda node: inside.create_topic(
                node.parts, name, partitions, config or {}, self._clock.now()
            )
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records.

        :raises Refused: there is none of this name
        """
        self._run(lambda node: node.parts.topics.delete(name, self._clock.now()))

    def grow_topic(self, name: str, partitions: int) -> None:
        """Gives a topic more partitions, so that it has so many.

        :raises Refused: there is none of this name, or it has as many
        """
        self._run(lambda node: inside.grow_topic(node.parts, name, partitions, self._clock.now()))

    @property
    def topics(self) -> dict[str, int]:
        """How many partitions each topic has, but for the broker's own topics."""
        return self._run(lambda node: inside.topics(node.parts))

    def produce(
        self,
        topic: str,
        *values: Text,
        key: Text = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Record]:
        """Appends records, all to one partition: where a producer's key puts them, else to the
        shortest. A topic that is missing is made, unless auto.create.topics.enable is false.
        """
        return self._run(
            lambda node: inside.produce(
                node.parts,
                topic,
                values,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                now=self._clock.now(),
            )
        )

    def read(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        count: int | None = None,
        timeout: float = PATIENCE,
    ) -> list[Record]:
        """The records of a topic, by partition and offset.

        :param offset: from here on, in each partition; else all that there are
        :param count: wait until there are so many, and give no more
        :param timeout: seconds to wait for them
        :raises TimeoutError: they did not come
        """
        look = partial(inside.read, topic=topic, partition=partition, start=offset, most=count)
        if count is None:
            return self._run(lambda node: look(node.parts))

        found: list[Record] = []

        def enough() -> list[Record] | None:
            nonlocal found
            if topic in self.topics:
                found = self._run(lambda node: look(node.parts))
            return found if len(found) >= count else None

        return self._wait(
            enough, timeout, lambda: f"{topic} has {len(found)} of {count} records awaited"
        )

    # Groups

    @property
    def groups(self) -> dict[str, str]:
        """The state of each group."""
        return self._run(lambda node: inside.groups(node.parts, self._clock.now()))

    def group(self, name: str, *, members: int | None = None, timeout: float = PATIENCE) -> Group:
        """A group with its members, as the coordinator sees it.

        :param members: wait until it is stable with so many (0: until it is empty)
        :param timeout: seconds to wait for that
        :raises TimeoutError: it did not happen
        """

        def look() -> Group:
            return self._run(lambda node: inside.group(node.parts, name, self._clock.now()))

        seen = look()
        if members is None:
            return seen

        def settled() -> Group | None:
            nonlocal seen
            seen = look()
            stable = seen.state == ("Stable" if members else "Empty")
            return seen if stable and len(seen.members) == members else None

        return self._wait(
            settled,
            timeout,
            lambda: (
                f"group {name} is {seen.state} with {len(seen.members)} members, "
                f"{members} were awaited"
            ),
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed, by partition."""
        return self._run(lambda node: inside.committed(node.parts, group, self._clock.now()))

    def expire(self, member: str, *, group: str | None = None) -> None:
        """Ends a member's session now, as if it had been silent for too long.

        :param member: its member id or static id, or a client id that no other member has
        """
        self._run(lambda node: inside.expire(node.parts, member, group, self._clock.now()))

    def move_coordinator(self, group: str) -> None:
        """Takes a group away from its coordinator, as when a broker of a cluster stops.

        Members are answered NOT_COORDINATOR until they look for it again; then it is loaded from
        its journal, without a rebalance.
        """
        self._run(lambda node: inside.move(node.parts, group, self._clock.now()))

    # Faults

    def fail(
        self,
        api: str | int,
        error: str | int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Answers the next requests with an error; they are not looked at.

        :param api: as Kafka calls it (``"Produce"``, ``"JoinGroup"``), or its key
        :param error: as Kafka calls it (``"NOT_COORDINATOR"``), or its code
        :param times: so many requests; None: all, until :meth:`heal`
        :param client_id: only requests of this client
        """
        self._order(api, times, client_id, code=code_of(error))

    def delay(
        self,
        api: str | int,
        seconds: float,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Handles the next requests later, by the broker's clock. Otherwise as :meth:`fail`."""
        wait = argument.milliseconds(seconds)
        if wait:
            self._order(api, times, client_id, delay=wait)

    def lose_answer(
        self, api: str | int, *, times: int | None = 1, client_id: str | None = None
    ) -> None:
        """Handles the next requests, and cuts the connection in place of an answer: the client
        does not learn what became of them. Otherwise as :meth:`fail`.
        """
        self._order(api, times, client_id, lost=True)

    def heal(self, api: str | int | None = None) -> int:
        """Takes back what was ordered of an API, or all; gives how many orders no request has met:
        0 if each of the faults has happened.
        """
        which = None if api is None else api_of(api)
        return self._run(lambda node: node.faults.cancel(which))

    def disconnect(self, client_id: str | None = None) -> int:
        """Cuts the connections of a client, or of all; gives how many there were.

        :raises InputError: there is no such client
        """
        return self._run(lambda node: inside.disconnect(node, client_id))

    # Within

    def _order(  # noqa: PLR0913, what an order has
        self,
        api: str | int,
        times: int | None,
        client_id: str | None,
        *,
        delay: int = 0,
        code: Code | None = None,
        lost: bool = False,
    ) -> None:
        order = Order(
            api=api_of(api),
            left=argument.times(times),
            client_id=client_id,
            delay=delay,
            code=code,
            lost=lost,
        )
        self._run(lambda node: node.faults.order(order))

    def _wait(self, look: Callable[[], T | None], timeout: float, problem: Callable[[], str]) -> T:
        __tracebackhide__ = True
        end = time.monotonic() + timeout
        while (found := look()) is None:
            if time.monotonic() >= end:
                raise TimeoutError(f"{problem()} after {timeout:g} s")
            time.sleep(PAUSE)
        return found
