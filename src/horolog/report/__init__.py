"""One page about the times of topics, to be mailed: `horolog report`.

gathering   what is known of topics, from a broker or from a log directory
picture     append time across, create time up: how many records are where
page        the page: one HTML file without a network (`page.html` is its template)
"""
