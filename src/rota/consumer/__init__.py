"""The consumer: membership in a background thread, fetching and callbacks in the application's."""
