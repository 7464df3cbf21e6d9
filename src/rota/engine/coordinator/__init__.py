"""The broker's side of a consumer group. Start with :mod:`.state`, then read :mod:`.classic`."""
