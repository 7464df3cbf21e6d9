"""``commit_to_group``: mirrors finished batches of streaming queries to a consumer group."""
