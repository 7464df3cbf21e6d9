"""The coordinator's side of a group."""
