"""Many strings in two arrays."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mast.data.shards.names import Names

TEXT = st.sampled_from(["", "a", "cat/1.jpg", "\u00e9/\u6f22", "\udcff\udc80"])


@settings(max_examples=20, deadline=None)
@given(st.lists(TEXT, max_size=10), st.slices(10))
def test_names_in_two_arrays_are_those_that_went_in(texts, some):
    names = Names.of(texts)
    assert list(names) == texts
    assert names == tuple(texts)
    assert names[some] == tuple(texts[some])
    assert [names[at] for at in range(-len(names), len(names))] == texts * 2
    assert names != (*texts, "more")
