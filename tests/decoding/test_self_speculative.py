"""The pieces of self-speculative decoding against their rules written out; whole texts are tested with the decoders."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbd.decoding.self_speculative import _likeliest, _tree


def of_acceptance(chance):
    """How probable each number of accepted candidates is, from 1, by all outcomes of the tests of the others."""
    found = [0.0] * len(chance)
    for passes in product((True, False), repeat=len(chance) - 1):
        weight = 1.0
        for of_place, passed in zip(chance[1:], passes, strict=True):
            weight *= of_place if passed else 1 - of_place
        found[[*passes, False].index(False)] += weight
    return found


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=6), st.integers(1, 7))
def test_branches_are_laid_behind_the_likeliest_numbers(others, branches):
    chance = [1.0, *others]
    probability, chosen = of_acceptance(chance), _likeliest(chance, branches)
    assert chosen == tuple(sorted(set(chosen)))
    assert len(chosen) == min(branches, len(chance))
    kept = sum(probability[number - 1] for number in chosen)
    assert kept == pytest.approx(sum(sorted(probability, reverse=True)[:branches]), abs=1e-12)


def test_without_branches_only_a_row_with_nothing_to_verify_drafts():
    assert _likeliest([1.0], 0) == (1,)
    assert _likeliest([1.0, 0.9], 0) == ()
    assert _likeliest([], 2) == ()


@pytest.mark.parametrize("junk", [0, 3])
@pytest.mark.parametrize(("count", "after", "k"), [(1, (1,), 4), (4, (1, 3), 4), (4, (), 4), (3, (1, 2, 3), 3)])
def test_a_tree_is_candidates_and_masks_behind_numbers_of_them(count, after, k, junk):
    needed = count + len(after) * k
    slots, positions, limit, low, high = _tree(count, after, needed + junk, k)
    seen = (slots < limit[:, None]) | ((slots >= low[:, None]) & (slots < high[:, None]))
    rule = np.zeros((needed, needed + junk), dtype=bool)
    place = []
    for query in range(needed):
        if query < count:
            rule[query, : query + 1] = True
            place.append(query)
        else:
            group, within = divmod(query - count, k)
            rule[query, : after[group]] = True
            rule[query, count + group * k : count + (group + 1) * k] = True
            place.append(after[group] + within)
    assert np.array_equal(seen[:needed], rule)
    assert positions[:needed].tolist() == place
    assert slots.tolist() == list(range(needed + junk))
    assert (limit[needed:] <= count).all()
