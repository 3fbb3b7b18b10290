"""horolog's own questions and actions: one row for each, in one table (docs/wire.md).

To add a question:

1. `wire/questions.py` gets what it takes and what it gives, two named tuples, and a `Question` with
   its name, the resource it is about, the right it needs, and both. It goes into `QUESTIONS`, by
   which the broker announces it as a feature. Members are what `json_text.read_as` reads. If
   an answer may not fit a string of the protocol, it has `paged`: it takes `start`, and gives
   `next`.
2. A module here gets the answer, a coroutine function of the broker, the client, the resource's
   name and what the question takes. It raises `RequestRefused`, and whatever the storage raises.
   What may wait for the disk or take long runs in `broker.searchers`. Pages are cut by
   `rows.as_many_as_fit`.
3. `table.py` gets the row, which joins the two.
4. `client/control.py` gets a method that asks: `_of_leader` asks the leader of a partition,
   `_of_leaders` those of many at a time, `_of_broker` any broker. They check the feature, read
   and join pages, raise on an answer of another form, and return None where the broker does not
   announce the question.
5. `docs/wire.md` gets a line in its table, and a section that names every member;
   `tests/broker/control/test_table.py` fails until both are there.

Nothing else knows of a row: no handler, no regular expression, no JSON. An action is added likewise
(`Action`, a function that checks the value and returns what performs it). What is described as
settings are, without being asked for in JSON (the clock), is an entry of `table.SHOWN`.
"""
