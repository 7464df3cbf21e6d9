"""Values that all other packages share: topics, members, requests, responses, entries, config."""
