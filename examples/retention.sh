#!/usr/bin/env bash
# Retention gone wrong: a record of a wrong clock keeps itself and all behind it for 200 years. Why, and what mends it.
#
# Needs `pip install horolog`; the port 9092 is free.
# Run in an empty directory: bash retention.sh
set -euo pipefail
trap 'kill $(jobs -p); wait' EXIT

serve() {
  horolog serve --port 9092 --log-dir ./log "$@" > broker.txt &
  broker=$!
  until grep -q ^ready broker.txt; do kill -0 $!; sleep 0.1; done
}

# Ten days ago: clicks are kept for a week, and may have any time, as in Kafka before 4.0.
serve --clock manual:-10d
horolog topics create clicks -c retention.ms=604800000 -c message.timestamp.after.max.ms=9223372036854775807
echo 'click 1' | horolog produce clicks --timestamp 2255-01-01T00:00Z
printf 'click 2\nclick 3\n' | horolog produce clicks --timestamp -10d
kill $broker && wait $broker

# Today: retention is checked twice a second, and deletes nothing. The exit code 1 says that a time is wrong.
serve --set log.initial.task.delay.ms=500 --set log.retention.check.interval.ms=500
horolog retention explain clicks || test $? = 1

# What would another setting do? By append time the segment is ten days old.
horolog retention explain clicks --set horolog.retention.by=append-time

# The mend: retention by append time, and no more times that are an hour ahead of the broker.
horolog topics alter clicks -c horolog.retention.by=append-time -c message.timestamp.after.max.ms=3600000
until test -z "$(horolog consume clicks --format value)"; do sleep 0.5; done
if echo 'click 4' | horolog produce clicks --timestamp 2255-01-01T00:00Z; then exit 1; fi
horolog retention explain clicks
echo 'Old clicks are deleted, and a wrong clock is refused.'
