"""The structures that Python and the C core share: what is laid out otherwise is not loaded."""

import ctypes
import timeit
from pathlib import Path

import pytest

from sudonet.native import library


@pytest.fixture
def file(native_path):
    """The C core that was built with the package."""
    return Path(native_path("portable").functions._name)


def doctored(structure, change):
    """The structure with other fields, under its own name."""
    fields = change(list(structure._fields_))
    return type(structure.__name__, (ctypes.Structure,), {"_fields_": fields})


def check_refused(file, structure, change, *words):
    others = [other for other in library.STRUCTURES if other is not structure]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "STRUCTURES", [*others, doctored(structure, change)])
        with pytest.raises(library.CoreError) as refused:
            library.load(file, "portable")
    for word in (f"sudo_{structure.__name__.lower()}", *words):
        assert word in str(refused.value)


def test_every_structure_is_compared_with_the_core():
    public = [
        value
        for name, value in vars(library).items()
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and name[0] != "_"
    ]
    assert set(library.STRUCTURES) == set(public)
    names = {one.__name__ for one in public}
    assert names == {"Unit", "Network", "Epilogue", "Axis", "Part", "Step", "Program", "Call"}


@pytest.mark.parametrize("structure", library.STRUCTURES, ids=lambda one: one.__name__)
def test_a_doctored_structure_is_refused(file, structure):
    for i, (name, kind) in enumerate(structure._fields_):
        field = f"field {name} of sudo_"

        def without(fields, i=i):
            return fields[:i] + fields[i + 1 :]

        def renamed(fields, i=i, kind=kind):
            return [*fields[:i], ("other", kind), *fields[i + 1 :]]

        def wider(fields, i=i, name=name, kind=kind):
            return [*fields[:i], (name, kind * 3), *fields[i + 1 :]]

        check_refused(file, structure, without)
        check_refused(file, structure, renamed, "field other of sudo_", "missing in the core")
        check_refused(file, structure, wider, field)
    longer = [("more", ctypes.c_int64)]
    check_refused(file, structure, lambda fields: fields + longer, "field more of sudo_")


def test_two_fields_of_one_type_in_the_wrong_order_are_refused(file):
    def swapped(fields):
        names = [name for name, _ in fields]
        i, j = names.index("low"), names.index("high")
        fields[i], fields[j] = fields[j], fields[i]
        return fields

    check_refused(file, library.Unit, swapped, "field high of sudo_unit")


def test_the_comparison_takes_less_than_a_millisecond(file):
    functions = library.load(file, "portable").functions
    seconds = min(timeit.repeat(lambda: library._layout_difference(functions), number=1, repeat=20))
    assert seconds < 1e-3
