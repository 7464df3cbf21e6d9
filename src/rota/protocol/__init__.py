"""Kafka's protocol for clients and brokers: schemas, messages, frames and SASL logins.

Read ``schemas`` first (what a message looks like), then ``messages`` (requests and responses by
name). ``codec`` makes the functions that encode and decode them, ``frames`` splits a connection's
bytes into messages, ``sasl`` is the server's side of a login.
"""
