"""The values that all other packages share: topics, members, requests, responses, journal
entries, config.
"""
