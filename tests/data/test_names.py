"""Names in two arrays are those that were given, one by one, in slices and all together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.data.cache import Names

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\udcff\udc80"), max_size=8)


@given(st.lists(TEXT, max_size=20), st.slices(20))
def test_they_are_those_that_were_given(given_names: list[str], some: slice) -> None:
    names = Names.of(given_names)
    assert list(names) == given_names
    assert names == tuple(given_names)
    assert names[some] == tuple(given_names[some])
    assert [names[at] for at in range(-len(names), len(names))] == given_names * 2
    assert names != (*given_names, "more")


def test_many_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.data.cache._AT_ONCE", 3)
    assert list(Names.of("abcdefgh")) == list("abcdefgh")
