"""Numbers for Prometheus: `families` has their names, `scrape` takes them, `page` serves them."""
