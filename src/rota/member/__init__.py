"""The member's side of a group."""
