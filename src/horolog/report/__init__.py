"""One page about the times of topics, to be mailed: `horolog report`.

picture     append time across, create time up: how many records are where
page        the page: one HTML file without a network (`page.html` is its template)

What is known of the topics is given to it (`horolog.cli.report`).
"""
