#!/usr/bin/env bash
# A shadow of an Apache Kafka: it answers questions about time that a Kafka does not, and can lead in its place.
#
# Needs `pip install horolog`, and a Kafka with a topic `clicks`; the port 9192 is free.
# Run in an empty directory: KAFKA=localhost:9092 bash shadow.sh
set -euo pipefail
trap 'kill $(jobs -p); wait' EXIT
export HOROLOG_BOOTSTRAP=127.0.0.1:9192

# The Kafka needs no configuration: the shadow asks as a consumer does.
horolog serve --follow "${KAFKA:-localhost:9092}" --topics-pattern clicks --port 9192 --log-dir ./shadow > shadow.txt &
until grep -q ^ready shadow.txt; do kill -0 $!; sleep 0.1; done
horolog consume clicks -b "${KAFKA:-localhost:9092}" --format json | sort > kafka.txt
until horolog consume clicks --format json | sort | cmp -s - kafka.txt; do sleep 0.5; done
horolog follow status

# Questions about time: an hour exactly, with the records that came late; why a segment is still there.
horolog consume clicks --from-time 2026-11-20T09:00Z --to-time 2026-11-20T10:00Z --format value
horolog retention explain clicks || test $? = 1

# The Kafka is lost: the shadow leads, with the same offsets, and takes records.
horolog promote --all
echo 'after the promotion' | horolog produce clicks
test -z "$(horolog consume clicks --format json | sort | comm -23 kafka.txt -)"
horolog consume clicks --from-time -5m --format value
