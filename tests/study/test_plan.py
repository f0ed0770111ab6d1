"""The plan of trials: what presets, options and budgets make of it."""

import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.experiments.presets import PRESETS
from sudonet.study.plan import make_plan


def test_the_full_protocol():
    plan = make_plan(PRESETS["paper"])
    assert plan.cells == 1030
    by_hand = 0
    for experiment in EXPERIMENTS.values():
        # tanh and relu are the same networks in the main text and in the appendix
        networks = {(g.shape, c, a) for g in experiment.grids for a, c in g.cells}
        protocol = experiment.protocol("1", 1)
        by_hand += len(networks) * protocol.replicas * len(protocol.rates)
    assert len(plan.trials) == len(set(plan.trials)) == by_hand


def test_standard_covers_every_cell():
    assert make_plan(PRESETS["standard"]).cells == 1030


def test_quick_has_a_part_of_every_table():
    plan = make_plan(PRESETS["quick"])
    assert {grid.id for grid in plan.tables} == set(GRIDS)
    for grid in plan.tables:
        assert {"tanh", "relu"} < set(grid.rows)
        assert set(grid.columns) <= set(GRIDS[grid.id].columns)
    assert {table for table, _, _ in plan.cells_of(plan.trials)} == set(GRIDS)


def test_replica_r_has_seed_r_whatever_its_activation_and_rate():
    plan = make_plan(PRESETS["paper"], tables=["regression-2"])
    seeds = {}
    for t in plan.trials:
        seeds.setdefault((t.column, t.activation, t.rate), set()).add(t.seed)
    assert set(map(frozenset, seeds.values())) == {frozenset(range(5))}


def test_options_choose_a_part():
    plan = make_plan(PRESETS["standard"], tables=["r-mnist-4"], levels=[4, 256], seeds=[7])
    assert [grid.id for grid in plan.tables] == ["r-mnist-4"]
    assert {t.activation for t in plan.trials} == {"tanh", "relu", "r-sudo-4", "r-sudo-256"}
    assert {t.seed for t in plan.trials} == {7}
    assert {t.shape for t in plan.trials} == {"4"}


def test_levels_replace_those_of_the_preset():
    plan = make_plan(PRESETS["quick"], tables=["checkerboard-1"], levels=[128])
    assert {t.activation for t in plan.trials} == {"tanh", "relu", "sudo-128"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tables": ["chess-1"]}, ["'chess-1'", "checkerboard-2"]),
        ({"levels": [3]}, ["3 levels", "256"]),
        ({"seeds": []}, ["seeds"]),
        ({"seeds": [0, 2**63]}, ["seeds", "0 to 9223372036854775808"]),
        ({"seeds": [-1, 3]}, ["seeds", "-1 to 3"]),
        ({"tables": []}, ["tables"]),
    ],
)
def test_what_the_paper_does_not_have(options, words):
    with pytest.raises(ValueError, match=".*".join(words)):
        make_plan(PRESETS["paper"], **options)


def test_a_budget_takes_one_trial_of_every_cell_before_the_second_of_any():
    plan = make_plan(PRESETS["paper"], tables=["checkerboard-1"])
    cells = plan.cells

    def cost(trial):
        return 1.0

    some = plan.within(cells, cost)
    assert len(some.trials) == cells
    assert some.cells == cells
    assert {t.seed for t in some.trials} == {0}
    assert {t.rate for t in some.trials} == {0.001}
    assert len(some.trials) + len(some.left_out) == len(plan.trials)
    assert set(some.trials).isdisjoint(some.left_out)


def test_a_budget_takes_cheap_trials_first():
    plan = make_plan(PRESETS["standard"], tables=["checkerboard-1"])
    some = plan.within(100, lambda trial: trial.column)
    assert {t.column for t in some.trials} == {5, 10}
    assert {t.seed for t in some.trials} == {0}
    assert not plan.within(0.001, lambda trial: trial.column).trials


def test_a_trial_that_does_not_fit_keeps_no_other_out():
    plan = make_plan(PRESETS["standard"], tables=["regression-2"])
    dear = plan.trials[0]
    assert dear.seed == 0
    some = plan.within(len(plan.trials), lambda trial: 1e6 if trial == dear else 1.0)
    assert some.left_out == (dear,)


def test_a_budget_takes_no_autoencoder_before_what_it_is_divided_by():
    plan = make_plan(PRESETS["standard"], tables=["regression-2", "autoencoder-dense"])
    divisor = {t for t in plan.trials if t.cell == ("conv", 1, "tanh")}
    assert {t.seed for t in divisor} == {0, 1}

    def cost(trial):
        return 50.0 if trial in divisor else 1.0

    without = plan.within(49, cost)
    assert {t.experiment for t in without.trials} == {"regression"}
    regression = sum(t.experiment == "regression" for t in plan.trials)
    assert len(plan.within(49 + regression, cost).trials) == regression
    networks = sum(t.experiment == "regression" and t.seed == 0 for t in plan.trials)
    some = plan.within(networks + 50 * len(divisor) + 7, cost)
    first = {t for t in divisor if t.seed == 0}
    assert first <= set(some.trials)
    assert sum(t.experiment == "autoencoder" for t in some.trials) > len(first)
    ready = plan.without(divisor.__contains__).within(49, cost)
    assert "autoencoder" in {t.experiment for t in ready.trials}


def test_a_plan_without_what_is_done():
    plan = make_plan(PRESETS["quick"], tables=["regression-2"])
    done = set(plan.trials[:5])
    left = plan.without(lambda trial: trial in done)
    assert set(left.trials) == set(plan.trials) - done


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("table", ["autoencoder-conv", "r-autoencoder-dense"])
def test_what_cells_are_divided_by_is_trained_for_the_same_share_of_its_steps(preset, table):
    experiment = EXPERIMENTS["autoencoder"]
    plan = make_plan(PRESETS[preset], tables=[table])

    def share(trial):
        return trial.steps / experiment.protocol(trial.shape, trial.column).steps

    references = [t for t in plan.trials if t.cell == ("conv", 1, "tanh")]
    for trial in plan.trials:
        assert any(
            abs(share(trial) - share(one)) < 1e-4 and one.seed == trial.seed for one in references
        )
    assert all(table in plan.tables_of(one) for one in references)
    assert plan.cells == len(plan.tables[0].cells)


def test_a_table_counts_the_references_of_its_own_shares_alone():
    tables = ["autoencoder-conv", "autoencoder-dense"]
    plan = make_plan(PRESETS["standard"], tables=tables)
    references = [t for t in plan.trials if t.cell == ("conv", 1, "tanh")]
    needed = {
        name: {(t.steps, t.seed) for t in references if name in plan.tables_of(t)}
        for name in tables
    }
    assert needed == {
        "autoencoder-conv": {(600, 0), (1800, 0)},
        "autoencoder-dense": {(20_000, 0), (20_000, 1)},
    }


def test_the_full_protocol_needs_no_further_reference():
    plan = make_plan(PRESETS["paper"], tables=["autoencoder-conv"])
    assert len(plan.trials) == 5 * plan.cells


def test_a_column_can_be_cut_more_than_its_table():
    standard, experiment = PRESETS["standard"], EXPERIMENTS["autoencoder"]
    steps = [standard.protocol(experiment, "conv", scale).steps for scale in (1, 4, 8)]
    assert steps == [1800, 1800, 600]


def test_tables_share_the_baselines():
    plan = make_plan(PRESETS["quick"], tables=["mnist-1", "r-mnist-1"])
    for trial in plan.trials:
        both = trial.activation in ("tanh", "relu")
        assert len(plan.tables_of(trial)) == 1 + both
