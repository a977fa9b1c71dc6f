"""`Report`s made by hand, for tests of what is shown of them."""

from __future__ import annotations

import dataclasses

from tf_amp_rewriter.report import model


def row(
    node: str, op: str, kind: str, reason: str, *, low: bool = False, scope: str = ""
) -> model.TypeVariableReport:
    return model.TypeVariableReport(
        scope=scope,
        node=node,
        op=op,
        attribute="T",
        precision="half" if low else "float32",
        kind=kind,
        reason=reason,
    )


LOWERED = model.Report(
    source="in",
    destination="out",
    dtype="half",
    device="any",
    type_variables_low=2,
    type_variables_float32=5,
    contractions=1,
    contractions_low=1,
    casts=1,
    weight_bytes_before=102_400_000,
    weight_bytes_after=51_300_000,
    type_variables=(
        row("dense/MatMul", "MatMul", "ALLOW", "always gains", low=True),
        row("dense/Relu", "Relu", "CLEAR", "its input is low", low=True, scope="body"),
        row("a/Exp", "Exp", "DENY", "grows beyond the range of half", scope="body"),
        row("b/Exp", "Exp", "DENY", "grows beyond the range of half", scope="body"),
        row("c/Sum", "Sum", "DENY", "sums many values"),
        row("x", "Placeholder", "PINNED", "is an input of the model"),
        row("d/Add", "AddV2", "TAINTED", "reads `a/Exp`, which stays float32"),
    ),
    weights=(
        model.WeightReport("w", "", "half", 102_200_000, 51_100_000, "only low consumers"),
        model.WeightReport("b", "", "float32", 200_000, 200_000, "holds 1e+06"),
    ),
    warnings=(
        "`keep_float32` has `foo.*`, which matches no node",
        "`keep_float32` has `bar.*`, which matches no node",
        "the model has 2 training functions",
    ),
    elapsed_s=1.23456,
)

KEPT_ALL = dataclasses.replace(
    LOWERED,
    type_variables_low=0,
    type_variables_float32=3,
    contractions_low=0,
    casts=0,
    weight_bytes_after=LOWERED.weight_bytes_before,
    type_variables=(
        row("m", "MatMul", "DENY", "op `MatMul` is denied by the options"),
        row("n", "MatMul", "DENY", "op `MatMul` is denied by the options"),
        row("x", "Placeholder", "PINNED", "is an input of the model"),
    ),
    weights=(),
    warnings=(),
)

EMPTY = dataclasses.replace(
    KEPT_ALL,
    destination="",
    type_variables_float32=0,
    contractions=0,
    type_variables=(),
    weight_bytes_before=0,
    weight_bytes_after=0,
)

_NO_KERNEL = "no half kernel on GPU and CPU both"
WITHOUT_KERNELS = dataclasses.replace(
    LOWERED,
    type_variables=(
        row("p", "AvgPool3D", "NO_KERNEL", _NO_KERNEL),
        row("l", "LRN", "NO_KERNEL", _NO_KERNEL),
        dataclasses.replace(row("l", "LRN", "NO_KERNEL", _NO_KERNEL), attribute="U"),
        row("l", "LRN", "NO_KERNEL", _NO_KERNEL, scope="body"),
        row("e", "Exp", "DENY", "grows"),
    ),
)
