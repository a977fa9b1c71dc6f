from __future__ import annotations

import inspect

import pytest

from tf_amp_rewriter import errors
from tf_amp_rewriter.ops import calls, categories, meanings
from tf_amp_rewriter.report import rule_table


def expect(expected: str, *ops: str) -> None:
    assert rule_table.text(ops) == inspect.cleandoc(expected) + "\n"


def test_notes_stand_beside_their_rows_where_there_is_room() -> None:
    expect(
        """
        op      category  compute  output   dtype  device  source                    note
        Cumsum  DENY      low      FLOAT32  both   all     measured on CPU, TF 2.21  it sums or multiplies many terms in the
                                                                                     type of its input
        Erf     INFER     -                 both   all     grappler infer            its results are bounded, so never tainted
        """,  # noqa: E501 # a picture
        "Erf",
        "Cumsum",
    )


def test_notes_stand_below_their_rows_where_there_is_none() -> None:
    text = rule_table.text(["SparseSegmentSqrtNWithNumSegments", "Softmax"])

    assert text.splitlines()[1].startswith("Softmax   ")
    assert text.splitlines()[2].startswith("    its results are bounded, so never tainted; float32")


def test_every_row_and_every_op_without_one_is_listed() -> None:
    lines = rule_table.text().splitlines()
    rows = [line.split()[0] for line in lines if line[:1] not in ("", " ")]
    ops = {row.op for row in categories.ROWS}

    assert ops <= set(rows)
    assert len([name for name in rows if name in ops]) == len(categories.ROWS)
    assert {*meanings.BY_MEANING, *calls.CALLS} <= {name.removesuffix(":") for name in rows}


def test_it_is_readable_in_120_columns() -> None:
    assert [line for line in rule_table.text().splitlines() if len(line) > 120] == []


def test_an_op_without_a_row_says_what_it_follows() -> None:
    expect(
        """
        Const: a weight: low where low precision ops read it, if its values fit
        While: a call: as what flows into its function, or out of it
        """,
        "While",
        "Const",
    )


def test_an_unknown_op_is_refused_with_those_that_are_near() -> None:
    with pytest.raises(errors.FlagError) as caught:
        rule_table.text(["MatMull"])

    assert str(caught.value) == (
        "`list_rules` names op `MatMull`, which no rule knows\n"
        "hint: did you mean `MatMul` or `BatchMatMul` or `SparseMatMul`?"
    )
