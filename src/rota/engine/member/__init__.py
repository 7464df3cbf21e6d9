"""The consumer's side of a group: start with :mod:`.state`, then :mod:`.member`."""
