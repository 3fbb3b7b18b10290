"""The README's first look does what it says, line by line."""

from first_look import first_look
from shell_blocks import Block, Shell, missing_lines

EXPECTED = """\
horolog ...
sent 1 record to greetings: partition 0 offsets 0 to 0
...Z 0@0 null hello
partition 0: offset 0, of ..., is the first at or after ...
...Z 0@0 null hello
cut.json: 1 partition at ..., all exact
...Z 0@0 null hello
billing reset to ...
complete until ...
greetings is complete until ...
next goes segment 0, ...
billing Empty classic ...
broker 1 is ready: 51 partitions, nothing is wrong
greetings-0 1 0 1 1 ...
52 partitions, 52 segments, ... checked (log directory in use): 1 note
"""


def test_each_line_of_the_first_look_succeeds(shell: Shell) -> None:
    output = shell.run(Block("sh", 0, first_look(), 1))
    assert missing_lines(EXPECTED, output) == [], output
