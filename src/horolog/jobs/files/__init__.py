"""Jobs on segment files, offline: verify and rebuild indexes, convert record formats.

parts     what is below the paths, as units of work
work      runs the work on parts: resumes, spreads, writes down what is done
offline   keeps brokers away from directories that are changed
index     verifies or rebuilds indexes
convert   rewrites segments in another record format
"""
