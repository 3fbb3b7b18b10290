#!/usr/bin/env bash
# A broker that is closed from its first start: users with passwords in files, rights, and what is refused.
#
# Needs `pip install horolog`; the port 9092 is free.
# Run in an empty directory: bash secured.sh
set -euo pipefail
trap 'kill $(jobs -p); wait' EXIT
umask 077
mkdir secrets

cat > server.properties <<'FILE'
listeners=SASL_PLAINTEXT://127.0.0.1:9092
sasl.enabled.mechanisms=SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
FILE

# A client's file names the file with the password. It never stands on a command line, which other users see.
user() {
  head -c 24 /dev/urandom | base64 | tr -d '\n' > "secrets/$1"
  cat > "$1.properties" <<FILE
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
config.providers=secret
config.providers.secret.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="$1" password="\${secret:$PWD/secrets:$1}";
FILE
}

# The first user is made before the broker runs, others by that one.
user admin
horolog users add admin --log-dir ./log --config server.properties --password-file secrets/admin
horolog serve --config server.properties --log-dir ./log > broker.txt &
until grep -q ^ready broker.txt; do kill -0 $!; sleep 0.1; done
export HOROLOG_COMMAND_CONFIG=admin.properties
horolog topics create clicks
user alice
horolog users add alice --password-file secrets/alice
horolog acls add User:alice read topic:clicks
horolog acls list
echo 'click 1' | horolog produce clicks

# Alice reads and does not write; without a login nobody does anything.
export HOROLOG_COMMAND_CONFIG=alice.properties
test "$(horolog consume clicks --format value)" = 'click 1'
if echo 'click 2' | horolog produce clicks; then exit 1; fi
HOROLOG_COMMAND_CONFIG=admin.properties horolog acls explain User:alice write topic:clicks || test $? = 1
unset HOROLOG_COMMAND_CONFIG
if horolog consume clicks; then exit 1; fi
echo 'Alice may read clicks, and nothing else.'
