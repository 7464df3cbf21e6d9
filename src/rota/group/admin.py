"""What admins ask: list, describe and delete groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.errors import Code
from rota.group import offset
from rota.group.classic import Group
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.entry import ClassicEntry, GroupForgotten
from rota.model.reply import (
    DescribedGroup,
    DescribedMember,
    ListedGroup,
    ListGroupsReply,
)
from rota.model.request import ListGroups


def list_groups(groups: Iterable[Group], request: ListGroups) -> ListGroupsReply:
    """All groups, or those in some states; the names of states in any case."""
    wanted = {state.casefold() for state in request.states}
    return ListGroupsReply(
        groups=tuple(
            ListedGroup(
                group=group.name, protocol_type=group.protocol_type or "", state=group.state.value
            )
            for group in sorted(groups, key=lambda group: group.name)
            if not wanted or group.state.value.casefold() in wanted
        )
    )


def describe(name: str, group: Group | None, *, knows_missing: bool) -> DescribedGroup:
    """A group and its members."""
    if group is None:
        code = Code.GROUP_ID_NOT_FOUND if knows_missing else Code.NONE
        return DescribedGroup(group=name, code=code)
    stable = group.state is State.STABLE
    return DescribedGroup(
        group=name,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                static_id=member.static_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol) if stable else b"",
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def delete(turn: Turn, group: Group | None, done: Callable[[Turn, Code], None]) -> None:
    """Deletes a group that has no members, with its offsets; ``done`` is told what came of it."""
    if group is None:
        done(turn, Code.GROUP_ID_NOT_FOUND)
    elif group.state is not State.EMPTY:
        done(turn, Code.NON_EMPTY_GROUP)
    else:
        forgotten = offset.tombstones(group, group.offsets)
        entries: tuple[ClassicEntry, ...] = (*forgotten, GroupForgotten(group=group.name))
        turn.append(entries, lambda later, code: done(later, answerable(code)))
