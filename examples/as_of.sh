#!/usr/bin/env bash
# Everything as of a time: records, a restored broker and a consumer group as they were before a mistake.
#
# Needs `pip install 'horolog[spark]'` and Java 17 or newer; the ports 9092 and 9192 are free.
# Run in an empty directory: bash as_of.sh
set -euo pipefail
trap 'kill $(jobs -p); wait' EXIT

horolog serve --port 9092 --log-dir ./log > broker.txt &
until grep -q ^ready broker.txt; do kill -0 $!; sleep 0.1; done
printf 'order 1\norder 2\n' | horolog produce orders
echo 'payment 1' | horolog produce payments

# A cut parts all topics at once: no payment is in it without the order that came before.
horolog cut --at now -o cut.json

# The mistake: a program pays an order that nobody made.
echo 'order 99' | horolog produce orders
echo 'payment 99' | horolog produce payments

# The records that were known: order 99 is not among them.
horolog consume orders --as-of cut.json --format value > known.txt
printf 'order 1\norder 2\n' | diff - known.txt

# A broker that never had the mistake.
horolog spark archive --source 127.0.0.1:9092 --topics orders,payments --as-of cut.json \
  --archive archive --state state/archive
horolog spark restore --archive archive --target restored --state state/restore
horolog serve --port 9192 --log-dir ./restored > restored.txt &
until grep -q ^ready restored.txt; do kill -0 $!; sleep 0.1; done
horolog consume orders -b 127.0.0.1:9192 --format value | diff - known.txt
test "$(horolog consume payments -b 127.0.0.1:9192 --format value)" = 'payment 1'

# A group that reads on from the cut, here everything that came later.
horolog groups reset billing --to cut.json --topics orders
horolog groups describe billing
test "$(horolog consume orders --offset 2 --partition 0 --format value)" = 'order 99'
echo 'Everything was as of the cut.'
