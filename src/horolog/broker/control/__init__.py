"""Answers horolog's own questions and performs its actions, by one table (docs/wire.md).

To add a question:

1. `wire/questions.py` gets what it takes and what it gives, two named tuples, and a `Question`
   with its name, the resource it is about, the right it needs, and both. The broker announces
   every `Question` of that module as a feature. Members are what `json_text.read_as` reads. If
   an answer may not fit a string of the protocol, it has `paged`: it takes `start`, and gives
   `next`.
2. `brokers`, `groups`, `history`, `partitions` or `topics` gets the answer: a coroutine function
   of the broker, the client, the resource's name and what the question takes, under
   `@rows.answers(...)`. It raises `RequestRefused`, and whatever the storage raises. What may
   wait for the disk or take long runs in `broker.searchers`. `rows.as_many_as_fit` cuts pages.
3. `docs/wire.md` gets a line in its table, and a section that names every member;
   `tests/broker/control/test_table.py` fails until both are there.

Clients ask `client.ask(QUESTION, ...)`; nothing else knows of a row. An action is added likewise
(`Action`, a function under `@rows.performs(...)` that checks the value and returns what performs
it). What is described as
settings are, without being asked for in JSON (the clock), is an entry of `table.SHOWN`.
"""
