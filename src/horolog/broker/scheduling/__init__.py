"""Scheduling of work on the event loop and in threads: order, turns and waits.

turns            slices of time on the event loop, for requests that take long
begun            coroutines that become tasks only where they have to wait
fair_pool        threads in which clients take turns; the threads that check batches
codec_threads    threads that decode and encode, in slices of time
loop_delay       how late timers of the event loop are, for metrics
inline_tries     back-off of lookups on the event loop while the page cache is cold
write_queue      the writes of one log, in order: checked, then appended; `jobs` are its entries
group_queue      the operations on one consumer group, in order
metadata_thread  the thread of the metadata store, and what it commits together
uncancelled      changes that a cancelled caller waits for
blocking_thread  a thread for calls over the network that a stop does not wait for
delayed          requests that wait for marks of partitions
pace             a rate of bytes per second that threads share
garbage          full garbage collections, at quiet moments

Nothing here knows a broker or a request. Logs, groups and calls are passed in.
"""
