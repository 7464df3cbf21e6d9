"""Programs that do with one client library what they are told: see base.py for the requests."""
