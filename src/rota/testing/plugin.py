"""The pytest plugin: the fixture ``kafka``."""
