from dataclasses import replace

import numpy as np
import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.report import published

NOISE = {
    "checkerboard-1": (3.40, 8.0),
    "checkerboard-2": (0.62, 2.0),
    "checkerboard-4": (0.65, 3.0),
    "regression-2": (0.38, 2.21),
    "regression-4": (0.03, 0.14),
    "memorization-2": (19.2, 31.4),
    "memorization-4": (48.5, 114),
    "memorization-10": (23.6, 43.4),
    "autoencoder-conv": (0.01, 0.02),
    "autoencoder-dense": (0.02, 0.06),
    "mnist-1": (0.57, 3.6),
    "mnist-4": (2.57, 12.6),
}
CEILING = {
    "checkerboard-1": 0.90,
    "checkerboard-2": 0.87,
    "checkerboard-4": 0.90,
    "regression-2": 0.78,
    "regression-4": 0.98,
    "memorization-2": 0.94,
    "memorization-4": 0.82,
    "memorization-10": 0.94,
    "autoencoder-conv": 0.99,
    "autoencoder-dense": 0.99,
    "mnist-1": 0.99,
    "mnist-4": 0.98,
}


def test_there_are_25_tables_with_1030_cells():
    tables = published.tables()
    assert len(tables) == 25
    assert sum(len(table.cells) for table in tables.values()) == 1030
    assert sum(table.family == "sudo" for table in tables.values()) == 13
    assert all(len(r) == len(t.columns) for t in tables.values() for r in t.rows.values())


def test_they_are_the_tables_of_the_experiments_in_the_same_order():
    assert list(published.tables()) == list(GRIDS)
    for name, table in published.tables().items():
        grid = GRIDS[name]
        assert (table.experiment, table.shape) == (grid.experiment, grid.shape)
        assert (table.columns, tuple(table.rows)) == (grid.columns, grid.rows)
        assert table.cells == grid.cells
        assert table.higher_is_better == EXPERIMENTS[grid.experiment].higher_is_better


def test_some_numbers_are_where_the_paper_prints_them():
    assert published.table("checkerboard-4").value("sudo-2", 5) == 53.8
    assert published.table("r-memorization-4").value("r-sudo-2", 200) == 2442.41
    assert published.table("r-mnist-4").value("r-sudo-256", 100) == 97.8
    assert published.table("autoencoder-dense").value("relu", 4) == 1.81


def test_who_changes_the_dictionary_changes_a_copy():
    published.tables().clear()
    assert published.tables()


def test_an_unknown_table_is_an_error_that_names_the_others():
    with pytest.raises(ValueError, match=r"'checkerboard-3': choose from checkerboard-1, .*mnist"):
        published.table("checkerboard-3")


def half_a_digit(number):
    """How far rounding to three digits, or to two after the point, moves a number."""
    return 0.505 if number > 100 else 0.0505 if number > 10 else 0.00505


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_what_the_protocol_says(name):
    mean, largest = NOISE[name]
    found = published.noise(name)
    assert found.mean == pytest.approx(mean, abs=half_a_digit(mean))
    assert found.max == pytest.approx(largest, abs=half_a_digit(largest))
    assert found.max == max(found.column_max.values())
    assert found.mean == pytest.approx(np.mean(list(found.column_mean.values())))


def test_noise_of_a_column_comes_from_its_tanh_and_relu_cells():
    found = published.noise("checkerboard-2")
    assert found.column_max == {5: 2.0, 10: 0.7, 50: 0.8, 100: 0.3, 200: 0.6}
    assert found.column_mean[5] == pytest.approx((82.3 - 81.3 + 73.9 - 71.9) / 2)


@pytest.mark.parametrize("name", NOISE)
def test_the_appendix_has_the_noise_and_the_ceiling_of_its_twin(name):
    assert published.noise(f"r-{name}") == published.noise(name)
    assert published.noise_as_compared(f"r-{name}") == published.noise_as_compared(name)
    assert published.ceiling(f"r-{name}") == published.ceiling(name)


def test_memorization_1_borrows_the_noise_of_memorization_2_relative_to_tanh():
    lent, borrowed = (published.noise_as_compared(f"memorization-{n}") for n in (2, 1))
    assert borrowed.column_max == pytest.approx(lent.column_max)
    share = published.noise("memorization-2").column_max[100] / 1289.6
    assert published.noise("memorization-1").column_max[100] == pytest.approx(share * 1535.56)
    assert published.ceiling("memorization-1") == 0.9


def test_only_memorization_is_compared_in_another_unit():
    for name, table in published.tables().items():
        same = published.noise_as_compared(name) == published.noise(name)
        assert same != (table.experiment == "memorization")
    assert published.noise_as_compared("memorization-4").column_max[50] == pytest.approx(
        (992.67 - 878.56) / 878.56
    )


@pytest.mark.parametrize("name", CEILING)
def test_the_simulated_ceiling_is_near_the_protocols(name):
    assert published.ceiling(name) == pytest.approx(CEILING[name], abs=0.03)


def test_the_ceiling_of_ratios_does_not_depend_on_the_level_of_a_column(monkeypatch):
    table = published.table("memorization-2")
    usual = published.ceiling(table.id)
    without = frozenset(place for place in table.cells if place[0] != "tanh")
    assert published.ceiling(table.id, without) == usual

    level = np.array([1, 20, 300])
    rows = {name: tuple(level * row) for name, row in table.rows.items()}
    differences = level * published._differences(table)
    monkeypatch.setattr(published, "table", lambda _: replace(table, rows=rows))
    monkeypatch.setattr(published, "_differences", lambda _: differences)
    assert published.ceiling.__wrapped__(table.id) == pytest.approx(usual)


def test_the_ceiling_of_a_part_of_a_table():
    table = published.table("r-checkerboard-1")
    whole = published.ceiling(table.id)
    assert published.ceiling(table.id, frozenset(table.cells)) == whole
    narrow = frozenset(place for place in table.cells if place[1] == 5)
    assert published.ceiling(table.id, narrow) < whole - 0.05
    for few in (frozenset(), frozenset(table.cells[:2])):
        assert published.ceiling(table.id, few) == whole


def test_the_ceiling_falls_as_noise_rises(monkeypatch):
    quiet = published.ceiling.__wrapped__("checkerboard-2")
    differences = published._differences
    monkeypatch.setattr(published, "_differences", lambda table: 3 * differences(table))
    assert published.ceiling.__wrapped__("checkerboard-2") < quiet - 0.1
    monkeypatch.setattr(published, "_differences", lambda table: 0 * differences(table))
    assert published.ceiling.__wrapped__("checkerboard-2") == pytest.approx(1)


def test_rank_correlation_is_spearmans_also_with_ties():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    for _ in range(50):
        a, b = generator.integers(0, 6, (2, 12))
        assert published.rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_rank_correlation_sees_order_alone():
    x = np.array([3.0, 1.0, 2.0, 10.0])
    assert published.rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert published.rank_correlation(x, -(x**3)) == pytest.approx(-1)


@pytest.mark.parametrize("sides", [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [5] * 3)])
def test_without_an_order_there_is_no_rank_correlation(sides):
    assert published.rank_correlation(*sides) is None
