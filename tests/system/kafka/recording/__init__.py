"""Records a run of a real broker with real clients, as a fixture: journal, log, what was done."""
