"""docs/pipeline.md: its commands, in order, against the brokers that its first ones start."""

import re
from pathlib import Path

import pytest
from in_process_spark import InProcessSpark, NeedsJvm
from shell_blocks import Shell, blocks, missing_lines

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"


def run_page(shell: Shell) -> int:
    """Number of blocks that ran; those that need a JVM are left out where the session has none."""
    ran, output = 0, None
    for block in blocks(PAGE.read_text()):
        if block.language != "text":
            try:
                output = shell.run(block)
                ran += 1
            except NeedsJvm:
                output = None
        elif output is not None:
            missing = missing_lines(block.text, output)
            assert not missing, f"line {block.line}: {missing[0]!r} was not printed:\n{output}"
    return ran


@pytest.mark.slow
@pytest.mark.spark
def test_the_commands_of_the_page_do_what_it_says(spark: object, shell: Shell) -> None:
    found = blocks(PAGE.read_text())
    assert run_page(shell) == sum(block.language != "text" for block in found)


def test_commands_of_the_page_that_need_no_jvm_do_what_it_says(
    in_process_spark: InProcessSpark, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.spark.session", lambda: in_process_spark)
    assert run_page(shell) >= 19  # questions and copies that need no data frame


def test_every_block_of_the_page_is_run() -> None:
    page = PAGE.read_text()
    assert 2 * len(blocks(page)) == len(re.findall(r"^\s*```", page, re.MULTILINE))


def test_a_block_with_another_exit_code_or_output_fails(shell: Shell) -> None:
    page = "```sh exit=3\necho one; echo two; exit 3\n```\n```text\no...\ntwo\n```\n"
    ran, said = blocks(page)
    assert missing_lines(said.text, shell.run(ran)) == []
    assert missing_lines("two\none\n", shell.run(ran)) == ["one"]
    with pytest.raises(AssertionError, match="exit code 3"):
        shell.run(ran._replace(exit_code=0))
