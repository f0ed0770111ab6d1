import json
import math
import random
from dataclasses import asdict, replace

import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS, Protocol, TableGrid, Trial
from sudonet.report import published
from sudonet.report.agreement import agreement, cells, compare
from tests.report.report_rows import cell, printed, row

GRID = TableGrid("checkerboard-2", "checkerboard", "2", (5, 10), ("tanh", "sudo-2"))
RATES = (0.001, 0.0001)
PLACE = "tanh", 5


def protocol(shape, column):
    return Protocol(steps=1000, replicas=3, rates=RATES)


def one(rows, grid=GRID, protocol_of=protocol):
    return cells(grid, rows, protocol_of)[PLACE]


def whole(values=((80, 81, 82), (70, 71, 72)), **others):
    """All networks of a cell, a list of replicas for each rate."""
    return [
        row(value, seed, rate, **others)
        for rate, replicas in zip(RATES, values, strict=False)
        for seed, value in enumerate(replicas)
    ]


def test_a_cell_of_the_full_protocol():
    found = one(whole())
    assert (found.value, found.spread, found.replicas) == (81, 1, 3)
    assert (found.rate, found.rates, found.trials) == (0.001, 2, 6)
    assert (found.full, found.protocol, found.reason) == (True, "full", None)
    assert (found.engine, found.source, found.checksum) == ("native-avx2", "a board", "c0ffee")
    assert (found.steps, found.share_of_steps, found.seconds) == (1000, 1, 12)
    assert (found.diverged, found.failed) == (0, 0)


def test_the_best_rate_is_the_lowest_where_lower_is_better():
    grid = TableGrid("regression-2", "regression", "2", (5,), ("tanh",))
    assert one(whole(experiment="regression"), grid).rate == 0.0001


def test_equal_rates_are_decided_for_the_larger():
    rows = whole(((80, 81, 82), (80, 81, 82)))
    assert one(rows).rate == one(rows[::-1]).rate == 0.001


def test_cells_that_were_not_run_are_absent():
    rows = [row(60, column=10, activation="sudo-2"), row(1, shape="4"), row(1, activation="relu")]
    assert list(cells(GRID, rows, protocol)) == [("sudo-2", 10)]


def test_cells_come_in_the_order_of_the_table():
    rows = [row(1, activation=a, column=c) for a, c in GRID.cells]
    assert list(cells(GRID, rows[::-1], protocol)) == GRID.cells


def test_one_replica_has_no_spread():
    found = one([row(80)])
    assert (found.value, found.spread, found.replicas) == (80, None, 1)


@pytest.mark.parametrize(
    "lost", [row(99, 2, diverged=7), row(math.nan, 2), row(math.inf, 2), row(None, 2)]
)
def test_a_rate_at_which_a_network_diverged_is_worse_than_any_other(lost):
    found = one([*whole(((90, 91), (70, 71, 72))), lost])
    assert (found.rate, found.value, found.replicas) == (0.0001, 71, 3)
    assert (found.diverged, found.trials, found.full) == (1, 6, True)


def test_if_networks_diverged_at_every_rate_the_one_with_fewest_is_taken():
    lost = [row(None, 2, diverged=7), row(None, 1, 0.0001, diverged=7)]
    lost.append(row(None, 2, 0.0001, diverged=9))
    found = one([*whole(((70, 72), (90,))), *lost])
    assert (found.rate, found.value, found.replicas, found.diverged) == (0.001, 71, 2, 3)


def test_a_cell_whose_networks_all_diverged_says_so():
    found = one([row(None, seed, diverged=5) for seed in range(3)])
    assert (found.value, found.spread, found.rate, found.replicas) == (None, None, None, 0)
    assert found.reason == "all 3 networks diverged"


def test_a_cell_whose_networks_all_failed_says_why():
    found = one([row(None, seed, failed="out of memory") for seed in range(2)])
    assert found.reason == "all 2 networks failed: out of memory"
    assert (found.value, found.failed, found.trials, found.full) == (None, 2, 0, False)


def test_a_cell_with_some_of_both_says_so():
    found = one([row(None, 0, diverged=5), row(None, 1, failed="killed")])
    assert found.reason == "1 networks diverged and 1 failed"


def test_failed_networks_do_not_count_as_done():
    found = one([*whole(((80, 81), (70, 71, 72))), row(None, 2, failed="killed")])
    assert found.protocol == "reduced: 2 of 3 replicas"
    assert (found.value, found.failed, found.diverged) == (80.5, 1, 0)


def test_a_result_beats_a_failure_of_the_same_trial():
    for rows in ([row(None, failed="killed"), row(80)], [row(80), row(None, failed="killed")]):
        assert (one(rows).value, one(rows).failed) == (80, 0)


def test_rates_are_compared_on_the_replicas_that_all_have():
    found = one([row(90, 0), row(50, 1), row(80, 0, 0.0001)])
    assert (found.rate, found.value, found.replicas) == (0.001, 70, 2)


def test_without_common_replicas_rates_are_compared_on_what_there_is():
    found = one([row(60, 0), row(50, 1), row(80, 2, 0.0001), row(82, 3, 0.0001)])
    assert (found.rate, found.value) == (0.0001, 81)


def test_a_column_is_shown_for_equally_many_steps_where_it_can_be():
    short = [row(70, activation=name, steps=200) for name in ("tanh", "relu", "sudo-2")]
    longer = [row(80, activation="tanh"), row(60, activation="tanh", column=10)]
    grid = GRIDS["checkerboard-2"]
    found = cells(grid, [*short, *longer], protocol)
    assert [found[name, 5].steps for name in ("tanh", "relu", "sudo-2")] == [200, 200, 200]
    assert [form.steps for form in found["tanh", 5].others] == [1000]
    assert found["tanh", 10].steps == 1000
    without = cells(grid, [*short, *longer, row(75, activation="sudo-4")], protocol)
    assert without["tanh", 5].steps == 1000  # sudo-4 has no other


def test_a_cell_by_another_recipe_says_so_and_gives_way_to_todays():
    former = whole(recipe="old", spec='{"optimiser": "adam", "batch_size": 100}')
    found = one(former)
    words = "another recipe: optimiser adam instead of momentum"
    assert (found.full, found.protocol) == (False, words)
    short = one([row(1, recipe="old", spec='{"optimiser": "adam"}')])
    assert short.protocol == f"{words}; reduced: 1 of 2 rates, 1 of 3 replicas"
    todays = one([*former, row(75, spec='{"optimiser": "momentum"}')])
    assert (todays.value, todays.protocol) == (75, "reduced: 1 of 2 rates, 1 of 3 replicas")
    assert [form.protocol for form in todays.others] == [words]


@pytest.mark.parametrize("spec", ["", "[1]", "null", "{"])
def test_a_spec_that_cannot_be_read_is_named(spec):
    words = f"another recipe: a spec that cannot be read, {spec!r}"
    assert one(whole(spec=spec)).protocol == words


def test_other_layers_are_another_recipe():
    words = "another recipe: sizes [5, 1] instead of [5, 5, 1]"
    assert one(whole(spec='{"sizes": [2, 5, 1]}')).protocol == words


def test_fewer_inputs_are_no_other_recipe():
    experiment = EXPERIMENTS["mnist"]
    trial = Trial("mnist", "1", 2, "tanh", 0.001, 0, 1000)
    spec = replace(experiment.spec(trial), sizes=(64, 2, 10))
    rows = [row(90, experiment="mnist", shape="1", column=2, spec=json.dumps(asdict(spec)))]
    found = cells(GRIDS["mnist-1"], rows, lambda shape, column: Protocol(1000, replicas=1))
    assert found["tanh", 2].protocol == "full"


def test_a_rate_that_was_only_begun_does_not_take_over():
    begun = [row(90, 0), row(99, 1), row(99, 2), row(91, 0, 0.0001)]
    assert (one(begun).rate, one(begun).value, one(begun).rates) == (0.001, 96, 1)
    assert one(begun).protocol == "reduced: 1 of 2 rates"
    further = [*begun, row(99.5, 1, 0.0001)]
    assert (one(further).rate, one(further).replicas, one(further).rates) == (0.0001, 2, 2)


def test_rates_outside_the_protocol_do_not_count():
    assert one([row(80), row(99, rate=0.01)]).value == 80
    assert cells(GRID, [row(99, rate=0.01)], protocol) == {}


def test_engines_and_data_are_never_mixed():
    rows = [row(80, 0), row(90, 1, engine="torch"), row(99, 2, checksum="other")]
    assert one(rows).replicas == 1


def test_the_group_with_the_largest_share_of_the_protocol_is_taken():
    most = whole(((80, 81, 82), (70,)), engine="torch")
    assert one([*whole(((90, 91),)), *most]).engine == "torch"


def test_many_short_networks_weigh_less_than_few_long_ones():
    short = whole(steps=200)  # 0.2 of the steps of all networks
    assert one([*short, *whole(((50, 51),))]).steps == 1000  # all the steps of 1 in 3
    assert one([*short, row(50)]).steps == 200  # all the steps of 1 in 6


def test_longer_training_is_no_larger_share():
    assert one([*whole(steps=4000), *whole()]).steps == 1000


def test_the_choice_does_not_depend_on_the_order_of_rows():
    rows = whole() + whole(engine="torch") + whole(checksum="other") + whole(steps=4000)
    first = one(rows)
    assert (first.engine, first.checksum) == ("native-avx2", "c0ffee")
    for seed in range(10):
        random.Random(seed).shuffle(rows)
        assert one(rows) == first


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (whole(((80, 81, 82),)), "reduced: 1 of 2 rates"),
        (whole(((80, 81), (70, 71))), "reduced: 2 of 3 replicas"),
        (whole(((80, 81, 82), (70,))), "reduced: 1 of 2 rates"),
        (whole(((80, 81, 82), (70, 71))), "reduced: 2 of 3 replicas"),
        (whole(steps=200), "reduced: 20 % of the steps"),
        (whole(steps=995), "reduced: 99.5 % of the steps"),
        ([row(1, steps=5)], "reduced: 1 of 2 rates, 1 of 3 replicas, 0.5 % of the steps"),
        (whole(steps=1500), "longer: 150 % of the steps"),
        (whole(((1, 2, 3, 4), (1, 2, 3, 4, 5))), "full"),
    ],
)
def test_the_protocol_in_words(rows, words):
    found = one(rows)
    assert found.protocol == words
    assert found.full == (words == "full")


AUTOENCODERS = TableGrid("autoencoder-dense", "autoencoder", "dense", (1, 2), ("tanh", "sudo-2"))


def single(shape, column):
    return Protocol(steps=1000 if shape == "conv" else 2000, replicas=2)


def autoencoders(value, shape="dense", column=2, seeds=2, steps=2000, **others):
    rest = {"experiment": "autoencoder", "shape": shape, "column": column, "steps": steps}
    return [row(value + seed, seed, **rest, **others) for seed in range(seeds)]


def reference(value, **others):
    return autoencoders(value, **{"shape": "conv", "column": 1, "steps": 1000} | others)


def test_autoencoders_are_relative_to_the_convolutional_tanh_network_of_scale_1():
    rows = autoencoders(29.5) + reference(14.5) + reference(99, activation="relu")
    found = cells(AUTOENCODERS, rows, single)["tanh", 2]
    assert found.value == pytest.approx(2)
    assert found.spread == pytest.approx(math.sqrt(0.5) / 15)
    assert (found.full, found.protocol, found.replicas) == (True, "full", 2)


def test_the_reference_itself_is_one():
    found = cells(GRIDS["autoencoder-conv"], reference(14.5), single)
    assert {place: value.value for place, value in found.items()} == {("tanh", 1): 1}


@pytest.mark.parametrize("base", [[], reference(10, checksum="other"), reference(10, diverged=3)])
def test_without_the_reference_there_is_no_value(base):
    found = cells(AUTOENCODERS, autoencoders(30) + base, single)["tanh", 2]
    assert (found.value, found.spread) == (None, None)
    assert "no convolutional tanh network of scale 1" in found.reason


def test_a_reduced_reference_is_mentioned():
    found = cells(AUTOENCODERS, autoencoders(30) + reference(10, steps=400), single)["tanh", 2]
    assert not found.full
    assert found.protocol == "full; reference reduced: 40 % of the steps"


def test_both_reduced_alike_say_it_once():
    rows = autoencoders(30, steps=800) + reference(10, steps=400)
    assert cells(AUTOENCODERS, rows, single)["tanh", 2].protocol == "reduced: 40 % of the steps"


def test_a_reference_of_the_same_share_of_steps_is_preferred():
    rows = autoencoders(19.5, steps=800) + reference(9.5) + reference(4.5, steps=400)
    assert cells(AUTOENCODERS, rows, single)["tanh", 2].value == pytest.approx(4)


def test_a_cell_that_diverged_keeps_its_own_reason():
    rows = autoencoders(30, diverged=3)
    assert cells(AUTOENCODERS, rows, single)["tanh", 2].reason == "all 2 networks diverged"


def test_differences_and_their_unit():
    found = compare(GRID, {PLACE: cell(85.3), ("sudo-2", 10): cell(70.1)})
    assert found[PLACE].difference == pytest.approx(4)
    assert found[PLACE].in_noise == pytest.approx(2)  # the largest rerun difference is 2.0
    assert found["sudo-2", 10].difference == pytest.approx(-1)
    assert (found[PLACE].ours, found[PLACE].published) == (85.3, 81.3)


def test_cells_without_a_value_are_not_compared():
    assert compare(GRID, {PLACE: cell(None)}) == {}


def test_memorization_is_compared_by_ratio_to_tanh():
    grid = GRIDS["memorization-4"]
    found = compare(grid, {("tanh", 50): cell(500.0), ("relu", 50): cell(600.0)})
    unit = (992.67 - 878.56) / 878.56
    assert found["relu", 50].ours == pytest.approx(1.2)
    assert found["relu", 50].published == pytest.approx(937.17 / 878.56)
    assert found["relu", 50].in_noise == pytest.approx((1.2 - 937.17 / 878.56) / unit)


@pytest.mark.parametrize("base", [{}, {("tanh", 50): cell(None)}, {("tanh", 100): cell(500.0)}])
def test_memorization_without_a_tanh_cell_is_not_compared(base):
    assert ("relu", 50) not in compare(GRIDS["memorization-4"], {("relu", 50): cell(600.0)} | base)


@pytest.mark.parametrize(
    "other",
    [{"checksum": "other"}, {"engine": "torch-cpu"}, {"share_of_steps": 0.5}, {"recipe": "old"}],
)
def test_memorization_is_divided_by_a_tanh_cell_that_was_trained_alike(other):
    found = {("relu", 50): cell(600.0), ("tanh", 50): cell(500.0, **other)}
    assert list(compare(GRIDS["memorization-4"], found)) == [("tanh", 50)]
    found["tanh", 50] = replace(found["tanh", 50], others=(cell(400.0),))
    assert compare(GRIDS["memorization-4"], found)["relu", 50].ours == pytest.approx(1.5)


@pytest.mark.parametrize("name", GRIDS)
def test_the_paper_agrees_with_itself(name):
    found = agreement(GRIDS[name], printed(name))
    assert found.spearman == pytest.approx(1)
    assert found.spearman_raw == pytest.approx(1)
    assert (found.within_noise, found.within_three, found.mean_difference) == (1, 1, 0)
    assert found.ceiling == published.ceiling(name)
    assert found.cells_run == found.cells_full == found.cells_published
    assert found.cells_published == len(GRIDS[name].cells)


@pytest.mark.parametrize("name", [name for name in GRIDS if f"r-{name}" in GRIDS])
def test_the_papers_second_run_is_within_the_noise(name):
    second = published.table(f"r-{name}")
    ours = {
        place: cell(second.value(*place)) for place in second.cells if place[0] in ("tanh", "relu")
    }
    found = agreement(GRIDS[name], ours)
    if name.startswith("memorization"):  # both cells of a ratio are noisy
        assert found.within_three == 1
    else:
        assert found.within_noise == 1


def test_another_picture_with_another_level_agrees_with_the_paper():
    name = "memorization-10"
    level = {50: 0.3, 100: 2.0, 200: 7.0}
    ours = {p: replace(c, value=c.value * level[p[1]]) for p, c in printed(name).items()}
    found = agreement(GRIDS[name], ours)
    assert found.spearman == pytest.approx(1)
    assert found.within_noise == 1
    assert found.spearman_raw < 0.7


def test_the_opposite_order_is_minus_one():
    ours = {p: replace(c, value=-c.value) for p, c in printed("mnist-1").items()}
    assert agreement(GRIDS["mnist-1"], ours).spearman == pytest.approx(-1)


@pytest.mark.parametrize(
    ("off", "shares"), [(2, (1, 1)), (2.01, (0, 1)), (6, (0, 1)), (6.1, (0, 0))]
)
def test_shares_within_noise(off, shares):
    ours = {p: replace(c, value=c.value + off) for p, c in printed("checkerboard-2").items()}
    found = agreement(GRIDS["checkerboard-2"], ours)
    assert (found.within_noise, found.within_three) == shares
    assert found.mean_difference == pytest.approx(off)
    assert found.noise == 2


@pytest.mark.parametrize(
    "some",
    [
        {},
        {("tanh", 5): cell(1.0), ("relu", 10): cell(2.0)},
        {place: cell(70.0) for place in GRIDS["checkerboard-2"].cells},
    ],
)
def test_too_few_cells_or_no_order_have_no_rank_correlation(some):
    found = agreement(GRIDS["checkerboard-2"], some)
    assert (found.spearman, found.cells_run) == (None, len(some))


def test_nothing_run_has_no_shares():
    found = agreement(GRIDS["mnist-4"], {("tanh", 2): cell(None)})
    assert (found.within_noise, found.within_three, found.mean_difference) == (None, None, None)
    assert (found.cells_run, found.cells_compared, found.cells_published) == (0, 0, 60)


def test_cells_that_are_one_by_definition_are_left_out():
    def compared(name):
        return agreement(GRIDS[name], printed(name)).cells_compared

    assert compared("memorization-2") == 27  # without the tanh row
    assert compared("autoencoder-conv") == compared("r-autoencoder-conv") == 39
    assert compared("autoencoder-dense") == 40


def test_full_cells_are_counted():
    ours = printed("mnist-1") | {("tanh", 2): cell(64.7, full=False)}
    assert agreement(GRIDS["mnist-1"], ours).cells_full == 59


def test_a_part_of_a_table_is_judged_by_that_part():
    ours = {p: replace(c, value=c.value + 9 * (p[1] > 10)) for p, c in printed(GRID.id).items()}
    assert agreement(GRID, ours).within_noise == 1
    assert agreement(GRIDS[GRID.id], ours).within_noise == 0.4


def test_the_protocols_of_the_experiments_are_full():
    experiment = EXPERIMENTS["mnist"]
    full = experiment.protocol("1", 2)
    rows = [
        row(60.0 + s, s, rate, column=2, experiment="mnist", shape="1", steps=full.steps)
        for s in range(full.replicas)
        for rate in full.rates
    ]
    found = cells(GRIDS["mnist-1"], rows, experiment.protocol)
    assert found["tanh", 2].full
