import re
from pathlib import Path

import pytest

from sudonet import _settings, native
from tests import ROOT

pytestmark = pytest.mark.without_core


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.delenv(_settings.DATA, raising=False)
    monkeypatch.delenv(_settings.NATIVE, raising=False)


@pytest.mark.parametrize("text", [None, "", "  "])
def test_nothing_set_means_no_folder_and_auto(monkeypatch, text):
    if text is not None:
        monkeypatch.setenv(_settings.DATA, text)
        monkeypatch.setenv(_settings.NATIVE, text)
    assert _settings.data_folder() is None
    assert _settings.native_choice() == "auto"


def test_data_folder_need_not_exist(monkeypatch, tmp_path):
    monkeypatch.setenv(_settings.DATA, str(tmp_path / "missing"))
    assert _settings.data_folder() == tmp_path / "missing"


def test_the_home_of_a_user_who_does_not_exist_is_no_error(monkeypatch):
    monkeypatch.setenv(_settings.DATA, "~no such user/data")
    assert _settings.data_folder() == Path("~no such user/data")


def test_data_folder_may_start_at_home(monkeypatch):
    monkeypatch.setenv(_settings.DATA, "~/data")
    assert _settings.data_folder() == Path.home() / "data"


def test_the_cache_is_where_the_user_has_caches(monkeypatch, tmp_path):
    monkeypatch.setenv(_settings.CACHE, str(tmp_path))
    assert _settings.cache_folder() == tmp_path / "sudonet"


@pytest.mark.parametrize("text", [None, "", "relative/path"])
def test_the_cache_is_at_home_by_default(monkeypatch, text):
    monkeypatch.delenv(_settings.CACHE, raising=False)
    if text is not None:
        monkeypatch.setenv(_settings.CACHE, text)
    assert _settings.cache_folder() == Path.home() / ".cache" / "sudonet"


@pytest.mark.parametrize("choice", _settings.NATIVE_CHOICES)
def test_every_choice_in_any_case(monkeypatch, choice):
    monkeypatch.setenv(_settings.NATIVE, f" {choice.upper()} ")
    assert _settings.native_choice() == choice


def test_a_bad_choice_names_value_choices_and_way_out(monkeypatch):
    monkeypatch.setenv(_settings.NATIVE, "SSE")
    with pytest.raises(ValueError, match=r"one of auto, off, .* got 'SSE': .*unset"):
        _settings.native_choice()


def test_no_other_module_reads_the_environment():
    package = Path(_settings.__file__).parent
    reading = re.compile(r"\b(environ|getenv)\b")
    readers = [p.name for p in package.rglob("*.py") if reading.search(p.read_text())]
    assert readers == ["_settings.py"]


def test_the_readme_lists_every_variable_and_choice():
    readme = (ROOT / "README.md").read_text()
    for word in (_settings.DATA, _settings.NATIVE, *_settings.NATIVE_CHOICES):
        assert f"`{word}`" in readme


def test_a_core_that_was_not_built_is_not_available(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    status = native.status()
    assert (status.available, status.path) == (False, None)
    assert status.reason.startswith("not built")


def test_a_core_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(_settings.NATIVE, "off")
    assert not native.status().available
    assert "SUDONET_NATIVE=off" in native.status().reason
