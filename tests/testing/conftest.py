"""Excludes the suite of the foreign project, which `test_testing_plugin` runs by itself."""

collect_ignore = ["foreign_project"]
