"""The job `failover`: consumer groups continue in another cluster without losing a record."""

import os
from collections.abc import Iterable
from functools import partial

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured
from horolog.jobs.failing_over import planning
from horolog.jobs.failing_over.applying import (
    Applied,
    check_survivor,
    commit,
    committed_before,
    unproven,
)
from horolog.jobs.failing_over.looking import look
from horolog.jobs.failing_over.planning import FailoverPlan
from horolog.jobs.failing_over.recorded import Recorded
from horolog.jobs.failing_over.recording import Recording, record_once
from horolog.jobs.parameters.failover import ApplyStep, PlanStep, RecordStep, Step
from horolog.jobs.parameters.function import on_spark, without_spark
from horolog.jobs.selection import client_of
from horolog.jobs.state import JobState
from horolog.patterns import given_pattern
from horolog.sources.location import Location

_RECORDED, _PLAN = "recorded", "plan"


def failover(spark: SparkSession, *, state: str | os.PathLike[str]) -> "Failover":
    """Return the three steps of a failover, which share a state directory.

        steps = jobs.failover(spark, state="failover")
        steps.record(source="east:9092", groups=["shop"])     # again and again
        steps.plan(target="west:9092")                        # once east is gone
        steps.apply(target="west:9092")

    No record is lost that takes no longer to the source's log than the longest that was recorded,
    plus the margin. `horolog.jobs.failing_over` explains why.
    """
    return Failover(spark, state)


@on_spark(RecordStep)
def record(spark: SparkSession, step: RecordStep) -> Recording:
    """Record until when groups have read, and how long records take, while the source lives.

    It reads the records since the last recording. Of a group that has committed since, it also
    reads records near its offset.

    Raises:
        Misconfigured: an argument is wrong, or the state is of another cluster.
        HorologError: the cluster cannot be read.
    """
    source = Location.parse(step.source)
    if not step.given_groups() and step.groups_pattern is None:
        raise Misconfigured("give the groups to record: --groups A,B or --groups-pattern RE")
    with _state(step) as state:
        recorded = _read(state)
        looked = look(step, source)
        if recorded is None:
            recorded = Recorded(looked.cluster_id, str(source))
        if recorded.cluster_id != looked.cluster_id:
            raise Misconfigured(
                f"the recordings in --state are of the cluster {recorded.cluster_id} "
                f"({recorded.source}), and {source} is of {looked.cluster_id}: give another --state"
            )
        recording = record_once(spark, step, source, looked, recorded)
        state.write(_RECORDED, recorded.to_json())
    return recording


@on_spark(PlanStep)
def plan(spark: SparkSession, step: PlanStep) -> FailoverPlan:
    """Plan where groups start on the survivor; the source is not asked.

    Raises:
        Misconfigured: nothing was recorded, or the target is the source.
        HorologError: the survivor cannot be read.
    """
    for name, given in (("margin", step.margin_ms), ("bound", step.bound_ms)):
        if given is not None and given < 0:
            raise Misconfigured(f"{name} is {given} ms; it is not below zero")
    with _state(step) as state:
        recorded = _read(state)
        if recorded is None:
            raise Misconfigured(f"{state.path} holds no recording: run failover record first")
        chosen = _chosen(recorded.groups, step, "was never recorded")
        made = planning.plan(spark, step, recorded, chosen)
        state.write(_PLAN, made.to_json())
    return made


@without_spark(ApplyStep)
def apply(step: ApplyStep) -> list[Applied]:
    """Commit the plan, group by group; a group that was committed is left alone.

    A killed run is run again. Groups that have members are refused, since brokers refuse commits of
    others for them.

    Raises:
        Misconfigured: no plan exists, it is of another cluster, or it lacks the given groups.
        HorologError: the survivor cannot be reached.
    """
    with _state(step) as state:
        document = state.read(_PLAN)
        if document is None:
            raise Misconfigured(f"{state.path} holds no plan: run failover plan first")
        planned = FailoverPlan.from_json(document)
        offsets = planned.offsets()
        chosen = _chosen({start.group for start in planned.starts}, step, "is not in the plan")
        done = {
            group for group in chosen if not step.overwrite and _key(planned, group) in state.done
        }
        refused = [] if step.accept_unproven else unproven(planned, chosen - done)
        left = chosen - done - {refusal.group for refusal in refused}
        applied = [*refused]
        target = Location.parse(step.target, "target")
        with client_of(target, step.settings or {}) as client:
            check_survivor(client, planned)
            applied += committed_before(client, {group: offsets.get(group, {}) for group in done})
            to_commit = {group: offsets[group] for group in left if group in offsets}
            for outcome in commit(client, to_commit, step):
                if outcome.error is None and not step.dry_run:
                    state.record([(_key(planned, outcome.group), {"offsets": outcome.offsets})])
                applied.append(outcome)
    return sorted(applied, key=lambda outcome: outcome.group)


class Failover:
    """The three steps of a failover, bound to a state directory.

    Copy it to the survivor's site.

    Attributes:
        record: The function `record`, bound to the state.
        plan: The function `plan`, bound to the state.
        apply: The function `apply`, bound to the state.
    """

    def __init__(self, spark: SparkSession, state: str | os.PathLike[str]) -> None:
        self.record = partial(record, spark, state=state)
        self.plan = partial(plan, spark, state=state)
        self.apply = partial(apply, state=state)


def _state(step: Step) -> JobState:
    return JobState(step.state, "failover", {})


def _key(plan: FailoverPlan, group: str) -> str:
    return f"{plan.id}/{group}"


def _chosen(known: Iterable[str], step: Step, not_: str) -> set[str]:
    """Return the groups that the options choose among the known ones.

    Raises:
        Misconfigured: a named group is unknown, or no group matches the pattern.
    """
    groups, pattern = step.given_groups(), step.groups_pattern
    known = set(known)
    if pattern is not None:
        matches = given_pattern(pattern, "groups-pattern").matches
        matching = {group for group in known if matches(group)}
        if not matching:
            raise Misconfigured(f"no group that matches {pattern} {not_}")
        return matching
    for group in groups:
        if group not in known:
            raise Misconfigured(f"group {group} {not_}")
    return set(groups) or known


def _read(state: JobState) -> Recorded | None:
    document = state.read(_RECORDED)
    return None if document is None else Recorded.from_json(document)
