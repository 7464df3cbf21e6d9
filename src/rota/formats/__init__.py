"""Byte layouts: what travels between members, leader and journal."""
