"""Values that every other room speaks in."""
