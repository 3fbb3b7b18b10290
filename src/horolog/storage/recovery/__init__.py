"""Recovery: opens the log of a partition from its files, whatever the last shutdown left.

loading    a log, opened
segments   its segments, one after the other; the plan by which it is opened, and what that found

It deletes nothing that can be read. It cuts the log where a batch is damaged, as Kafka does; what
it takes off is set aside (`removal/set_aside.py`), named in a warning, and `horolog log verify`
says what it holds and how it comes back. Only the beginning of a batch, zeros and garbage go.

A finished segment that is shorter than its seal says is named, and reads continue behind the gap.
Indexes, seals and what else is made from a log are no condition of serving it: on a full disk it
is served without.
"""
