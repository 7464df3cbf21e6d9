"""Programs that do with one client library what they are told: see desk.py for the language."""
