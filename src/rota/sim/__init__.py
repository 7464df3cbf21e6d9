"""Groups under a virtual clock: both machines, a network between them, and what came of it."""
