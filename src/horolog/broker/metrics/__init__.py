"""Metrics for Prometheus: `families` lists them, `scrape` collects them, `page` serves them.

They are computed for each scrape: from the counts of finished blocks (`companion/counts.py`), the
counts of responses (`traffic`, `network/request_times.py`), the lag of groups (`group_lag`), and
what is wrong (`health`). `process` has what a broker may run out of.
docs/metrics.md describes each family.
"""
