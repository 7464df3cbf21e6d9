"""A member of a group, the consumer's side.

Start with :mod:`.state`, then :mod:`.member`, which passes each event to the part that handles it.
"""
