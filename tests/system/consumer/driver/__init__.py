"""Members of a group that tell all they do, in processes of their own."""
