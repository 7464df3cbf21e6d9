"""What admins ask: list, describe and delete groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.errors import Code
from rota.group import offset
from rota.group.classic import Group
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.entry import ClassicEntry, GroupForgotten
from rota.model.reply import (
    DeleteGroupsReply,
    DescribedGroup,
    DescribedMember,
    ListedGroup,
    ListGroupsReply,
)
from rota.model.request import DeleteGroups, ListGroups


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


def delete(turn: Turn, groups: Mapping[str, Group], token: int, request: DeleteGroups) -> None:
    """Deletes groups that have no members, with their offsets."""
    codes: dict[str, Code] = {}
    entries: list[ClassicEntry] = []
    for name in request.groups:
        group = groups.get(name)
        if group is None:
            codes[name] = Code.GROUP_ID_NOT_FOUND
        elif group.state is not State.EMPTY:
            codes[name] = Code.NON_EMPTY_GROUP
        elif name not in codes:
            codes[name] = Code.NONE
            entries += [*offset.tombstones(group, group.offsets), GroupForgotten(group=name)]
    if entries:
        turn.append(tuple(entries))
    turn.answer_after_append(token, lambda code: DeleteGroupsReply(codes=_outcome(codes, code)))


def _outcome(codes: dict[str, Code], failed: Code) -> dict[str, Code]:
    return {name: code or answerable(failed) for name, code in codes.items()} if failed else codes
