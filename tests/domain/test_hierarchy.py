"""Groups of records are declared, checked and put in order before anything is read."""

import warnings

import numpy as np
import pytest

from dphist.domain import Categories
from dphist.domain.hierarchy import Hierarchy, make_hierarchy
from dphist.errors import PrivacyError, UsageError

TREE = {"North": ["H1", "H2"], "South": ["H3"], "West": ["H4", "H5", "H6"]}


def test_a_list_is_one_level_and_a_dictionary_is_two():
    flat = make_hierarchy("hospital", ["H1", "H2"])
    assert (flat.names, flat.labels, flat.parents) == (("hospital",), (("H1", "H2"),), ())
    two = make_hierarchy(("region", "hospital"), TREE)
    assert two.labels == (("North", "South", "West"), ("H1", "H2", "H3", "H4", "H5", "H6"))
    assert two.parents[0].tolist() == [0, 0, 1, 2, 2, 2]
    assert make_hierarchy("hospital", TREE).names == ("level 1", "hospital")


def test_one_name_more_than_declared_is_the_total_of_all():
    tree = make_hierarchy(("nation", "region", "hospital"), TREE)
    assert tree.labels[0] == ("all",)
    assert [p.tolist() for p in tree.parents] == [[0, 0, 0], [0, 0, 1, 2, 2, 2]]
    assert [tree.runs(level).starts.tolist() for level in range(3)] == [[0, 6], [0, 2, 3, 6], list(range(7))]
    assert tree.sizes == (1, 3, 6)


def test_groups_of_one_parent_lie_side_by_side_whatever_the_order_of_the_file(tmp_path):
    file = tmp_path / "groups.txt"
    file.write_text("﻿South\tH3\nNorth\tH1\n\nSouth\tH9\nNorth\tH2\n", "utf-8")
    tree = make_hierarchy(("region", "hospital"), file)
    assert tree.labels == (("South", "North"), ("H3", "H9", "H1", "H2"))
    assert tree.parents[0].tolist() == [0, 0, 1, 1]


def test_other_is_the_last_leaf_below_groups_of_its_own():
    tree = make_hierarchy(("nation", "region", "hospital"), TREE, other="elsewhere")
    assert tree.labels[1][-1] == tree.leaves[-1] == "elsewhere"
    assert tree.labels[0] == ("all",)
    assert (tree.axis.labels, tree.axis.other, tree.axis.n) == (tree.leaves[:-1], True, 7)
    assert tree.axis.index(["H9", "H1", None]).tolist() == [6, 0, -1]


def test_groups_are_found_by_label_and_level():
    tree = make_hierarchy(("region", "hospital"), {"A": ["A", "B"], "C": ["D"]})
    assert (tree.find("A"), tree.find("C"), tree.at(0, "A")) == ((1, 0), (0, 1), 0)
    assert tree.level("hospital") == 1
    for wrong in (lambda: tree.find("X"), lambda: tree.at(0, "B"), lambda: tree.level("nation")):
        with pytest.raises(UsageError, match="there is no"):
            wrong()


def test_a_description_tells_all_of_it():
    tree = make_hierarchy(("nation", "region", "hospital"), TREE, other="x")
    again = Hierarchy.from_dict(tree.to_dict())
    assert again.to_dict() == tree.to_dict()
    assert again.runs(1).starts.tolist() == tree.runs(1).starts.tolist()


@pytest.mark.parametrize(
    ("by", "groups", "says"),
    [
        ("h", ["A", "B", "A"], "'A' is declared twice"),
        (("r", "h"), {"N": ["A"], "S": ["B", "A"]}, "'A' is declared in two groups above"),
        (("n", "r", "h"), {"X": {"N": ["A"]}, "Y": {"N": ["B"]}}, "the r 'N' is in two groups above"),
        ("h", [], "at least one group"),
        ("h", ["A", " "], "group 2 is empty"),
        ("h", ["A", 3], "must be a string"),
        ("h", "no such file.txt", "cannot be read"),
        (("r", "h"), {"N": []}, "must have a list"),
        (("r", "h"), {"N": "A"}, "must have a list"),
        (("r", "h"), [("N", "A"), ("B",)], "as many groups above"),
        (("a", "b", "c", "d"), {"N": ["A"]}, "by names 4 levels"),
        (("h", "h"), {"N": ["A"]}, "same name"),
        ((), ["A"], "by must name"),
        ("", ["A"], "by must name"),
        ("h", "A", "in Python a list"),
        ("h", [("N", "A"), "B"], "'B' has 0, and 'A' has 1"),
        ("h", {"A", "B"}, "list of labels"),
        ("h", 3, "list of labels"),
    ],
)
def test_what_cannot_be_meant_is_refused(by, groups, says):
    with pytest.raises(UsageError, match=says):
        make_hierarchy(by, groups)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "g.txt").write_bytes("Köln".encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8"):
        make_hierarchy("h", tmp_path / "g.txt")


def test_groups_that_look_alike_are_a_warning():
    with pytest.warns(UserWarning, match="'North' and 'north '"):
        make_hierarchy("h", ["North", "north "])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_hierarchy("h", ["North", "Northern"])


def test_labels_in_two_unicode_forms_or_with_spaces_at_their_ends_are_a_warning():
    with pytest.warns(UserWarning, match="Unicode forms"):
        tree = make_hierarchy("h", ["Caf\u00e9", "Cafe\u0301"])
    assert tree.leaves == ("Caf\u00e9", "Cafe\u0301")  # each as it was declared
    with pytest.warns(UserWarning, match="begin or end with spaces: 'H1 '"):
        make_hierarchy("h", ["H1 ", "H2"])


def test_a_file_is_read_line_by_line_and_labels_keep_what_is_in_them(tmp_path):
    file = tmp_path / "g.txt"
    file.write_bytes('\ufeffN\tH1\r\n\r\n   \r\nN\tH\x0b2\u2028\x85x\r\nS\t"H3"\r\n'.encode())
    tree = make_hierarchy(("r", "h"), file)
    assert tree.labels == (("N", "S"), ("H1", "H\x0b2\u2028\x85x", '"H3"'))
    file.write_text("H1\t\n")
    with pytest.raises(UsageError, match="is empty"):
        make_hierarchy("h", file)
    with pytest.raises(UsageError, match="cannot be read"):
        make_hierarchy("h", tmp_path)


def test_columns_of_labels_are_refused_and_lists_are_not():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    labels = ["H1", "H2"]
    for column in (
        np.array(labels),
        pandas.Series(labels),
        pandas.Index(labels),
        polars.Series(labels),
        arrow.array(labels),
    ):
        for declare in (lambda c: make_hierarchy("h", c), Categories):
            with pytest.raises(PrivacyError, match="public knowledge") as error:
                declare(column)
            assert "H1" not in str(error.value)
    assert make_hierarchy("h", list(pandas.Series(labels))).leaves == ("H1", "H2")
    assert Categories(list(pandas.Series(labels))).labels == ("H1", "H2")


def test_a_misspelt_group_is_told_which_are_near():
    tree = make_hierarchy(("region", "hospital"), TREE)
    for wrong, says in (
        (lambda: tree.find("Nort"), "Did you mean 'North'"),
        (lambda: tree.find("h3"), "Did you mean 'H3'"),
        (lambda: tree.find("zzz"), "There is: H1"),
        (lambda: tree.at(0, "south"), "Did you mean 'South'"),
    ):
        with pytest.raises(UsageError, match=says):
            wrong()
    many = make_hierarchy("h", [f"H{i}" for i in range(30_000)])  # too many to compare
    with pytest.raises(UsageError, match=r"there is no group 'X'\.$"):
        many.find("X")


def test_the_parts_must_fit():
    with pytest.raises(UsageError, match="side by side"):
        Hierarchy(("r", "h"), (("A", "B"), ("x", "y", "z")), (np.array([0, 1, 0]),))
    with pytest.raises(UsageError, match="side by side"):
        Hierarchy(("r", "h"), (("A", "B"), ("x",)), (np.array([0]),))
    with pytest.raises(UsageError, match="which group is above"):
        Hierarchy(("r", "h"), (("A",), ("x",)))
