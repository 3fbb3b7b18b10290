"""Sockets, frames and back-pressure; what answers a request is passed in."""
