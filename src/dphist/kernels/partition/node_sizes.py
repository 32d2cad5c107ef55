"""How many bins the nodes of the trees have from which groups are split off: public, from the bins alone."""

from __future__ import annotations

from dphist.domain import as_int
from dphist.errors import UsageError

_MOST_PARTS = 1 << 16  # of a node: they are looked at together, and must fit into memory


def checked_trees(fanout: int, blocks: int) -> tuple[int, int]:
    """Return both as whole numbers; refuse what are no trees.

    The tops of several have a power of 2 bins, and so must have their parts.
    """
    fanout, blocks = as_int(fanout, "a tree's fanout"), as_int(blocks, "a number of blocks")
    if not 2 <= fanout <= _MOST_PARTS:
        raise UsageError(f"a tree's fanout is from 2 to {_MOST_PARTS}, not {fanout}.")
    if blocks < 1 or (blocks > 1 and fanout.bit_count() > 1):
        raise UsageError(
            f"there are 1 or more blocks, not {blocks}; the fanout of several is 2, 4, 8, ..., not {fanout}."
        )
    return fanout, blocks


def node_sizes(n: int, fanout: int, blocks: int) -> list[int]:
    """Return how many bins a node of each height has, single bins first; each divides the next.

    Args:
        fanout: how many parts a node is split into; those of several trees end with 2 where 4 do not fit.
        blocks: how many trees there are: one, or at least so many and at most 2 blocks - 2. If there are no
            more bins than that, each is by itself.
    """
    if blocks > 1:
        sizes = [1 << max(((n - 1) // (blocks - 1)).bit_length() - 1, 0)]
        while sizes[0] > 1:
            sizes.insert(0, max(sizes[0] // fanout, 1))
        return sizes
    sizes = [1]
    while sizes[-1] < n:
        sizes.append(sizes[-1] * fanout)
    return sizes
