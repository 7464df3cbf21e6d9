"""A consumer: the member machine in a thread of its own, and reading in the application's."""
