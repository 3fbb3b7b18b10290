"""Sockets, frames and back-pressure; the request handler is passed in as `Dispatch`."""
