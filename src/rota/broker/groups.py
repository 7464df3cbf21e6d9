"""Runs the group coordinators: what they want appended is appended, then they are told, then
their answers leave.
"""

from __future__ import annotations


class Groups:
    """Interface; see the module's issue."""
