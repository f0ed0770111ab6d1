"""Portions for a cluster, and the simulated cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sudonet.experiments.presets import PRESETS
from sudonet.study._batches import LONGEST, SHORTEST, batches, simulate
from sudonet.study.plan import make_plan

PLAN = make_plan(PRESETS["standard"], tables=["checkerboard-2", "mnist-4", "r-mnist-4"])


def cost(trial):
    return trial.column**1.2 / 5


def test_every_trial_is_in_one_batch():
    found = batches(PLAN.trials, cost)
    assert sorted(t for batch in found for t in batch.trials) == sorted(PLAN.trials)
    for batch in found:
        assert {t.experiment for t in batch.trials} == {batch.experiment}
        assert batch.seconds == pytest.approx(sum(map(cost, batch.trials)))


def test_batches_are_neither_long_nor_short():
    found = batches(PLAN.trials, cost)
    assert all(batch.seconds <= LONGEST or len(batch.trials) == 1 for batch in found)
    short = [batch for batch in found if batch.seconds < SHORTEST]
    assert len(short) < len(found) / 4
    assert len(found) < len(PLAN.trials) / 2


def test_the_longest_come_first_and_the_order_is_fixed():
    found = batches(PLAN.trials, cost)
    seconds = [batch.seconds for batch in found]
    assert seconds == sorted(seconds, reverse=True)
    assert found == batches(reversed(PLAN.trials), cost)


def test_a_long_trial_is_a_batch_by_itself():
    found = batches(PLAN.trials, lambda trial: 1000.0)
    assert [len(batch.trials) for batch in found] == [1] * len(PLAN.trials)


def test_trials_that_share_minibatches_stay_together():
    """One shape and one seed, where the stack is not too long."""
    found = batches(PLAN.trials, lambda trial: 2.0)
    stacks = [{(t.experiment, t.shape, t.column, t.seed) for t in b.trials} for b in found]
    assert sum(map(len, stacks)) == len(set.union(*stacks))


def test_nothing_is_no_batch():
    assert batches([], cost) == []
    assert simulate([], 4).makespan == 0


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=60), st.integers(1, 100))
def test_a_simulated_run_is_within_what_is_possible(seconds, cpus):
    run = simulate(seconds, cpus)
    least = max(max(seconds), sum(seconds) / cpus)
    assert least - 1e-6 <= run.makespan <= sum(seconds) + 1e-6
    # no more than twice the best, as every schedule of this kind
    assert run.makespan <= 2 * least + 1e-6
    assert 0 < run.efficiency <= 1 + 1e-9


def test_overheads_count():
    assert simulate([10] * 4, 2, overhead=1, start=5).makespan == 27
    assert simulate([10] * 4, 1).efficiency == 1
    with pytest.raises(ValueError, match="at least 1, got 0"):
        simulate([1], 0)
