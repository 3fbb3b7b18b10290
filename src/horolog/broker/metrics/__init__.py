"""Metrics for Prometheus: `families` lists them, `scrape` collects them, `page` serves them.

They are made when they are asked for: from what logs counted as blocks were finished
(`companion/counts.py`), what answers were counted (`traffic`, `network/request_times.py`), and how
far groups are behind (`group_lag`). docs/metrics.md has them family by family.
"""
