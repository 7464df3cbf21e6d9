"""Plans: what a strategy would give a group, and what would move."""
