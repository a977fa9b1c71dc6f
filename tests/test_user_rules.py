"""Users' knowledge: the rules file, force_low, grappler's variables, register_rule, missing_op."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, op_def_pb2, types_pb2

import tf_amp_rewriter
from tests import graph_text
from tf_amp_rewriter import cli, dtypes, environment, errors, registry, rules_file
from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.report import model

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
README = pathlib.Path(__file__).parent.parent / "README.md"
# By the tables alone: m and n low, e float32 and tainting t.
NETWORK = """
    x: f32[8,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)
    e = Exp(m)
    t = Tanh(e)
    block/n = MatMul(t, w)
    y = Identity(block/n)
"""


def rewrite(**options: object) -> model.Report:
    return rewrite_graph(graph_text.parse(NETWORK), **options)


def rewrite_graph(graph: graph_pb2.GraphDef, **options: object) -> model.Report:
    given = tf_amp_rewriter.Options(outputs=("y",), **options)  # type: ignore[arg-type]
    return tf_amp_rewriter.rewrite_graph_def(graph, given)


def precisions(report: model.Report, nodes: str) -> str:
    found = {entry.node: entry.precision for entry in report.type_variables}
    return " ".join(found[node] for node in nodes.split())


def entry_of(report: model.Report, node: str) -> model.TypeVariableReport:
    return next(entry for entry in report.type_variables if entry.node == node)


def file_with(folder: pathlib.Path, text: str) -> str:
    path = folder / "amp.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def lists(**variables: str) -> environment.GrapplerLists:
    return tf_amp_rewriter.grappler_lists({PREFIX + name: v for name, v in variables.items()})


def test_without_rules() -> None:
    report = rewrite()

    assert precisions(report, "m e t block/n") == "half float32 float32 half"
    assert report.warnings == ()
    assert "rules file" not in entry_of(report, "m").source
    assert entry_of(report, "m").source != ""


# --- rules file ----------------------------------------------------------------------------------


def test_the_last_rule_that_matches_wins(tmp_path: pathlib.Path) -> None:
    rules = file_with(
        tmp_path,
        """
        [[rule]]
        op = ["MatMul", "Tanh"]
        category = "deny"
        [[rule]]
        op = "MatMul"
        node = "^block/"
        category = "allow"
        reason = "measured"
        """,
    )
    report = rewrite(rules=rules)

    assert precisions(report, "m t block/n") == "float32 float32 half"
    assert entry_of(report, "m").source == f"rules file {rules} rule 1"
    assert entry_of(report, "block/n").source == f"rules file {rules} rule 2: measured"
    assert report.warnings == ()


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('dtype = "half"', True),
        ('dtype = "bfloat16"', False),
        ('device = "any"', True),
        ('device = "gpu"', False),
    ],
)
def test_a_rule_holds_for_its_dtype_and_device(
    condition: str, holds: bool, tmp_path: pathlib.Path
) -> None:
    rules = file_with(tmp_path, f'[[rule]]\nop = "MatMul"\n{condition}\ncategory = "keep"\n')
    report = rewrite(rules=rules)

    assert precisions(report, "m") == ("float32" if holds else "half")
    assert report.warnings == ()


@pytest.mark.parametrize(("output", "precision"), [("low", "half"), ("float32", "float32")])
def test_output_says_whether_a_denied_op_taints(
    output: str, precision: str, tmp_path: pathlib.Path
) -> None:
    text = f'[[rule]]\nop = "Exp"\ncategory = "deny"\noutput = "{output}"\n'
    text += '[[rule]]\nop = "Tanh"\ncategory = "infer"\n'
    graph = graph_text.parse(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)
        e = Exp(m)
        t = AddV2(e, m)
        block/n = MatMul(t, w)
        y = Identity(block/n)
        """
    )
    text = text.replace("Tanh", "AddV2")

    report = rewrite_graph(graph, rules=file_with(tmp_path, text))

    assert precisions(report, "e t") == f"float32 {precision}"


def test_a_rule_for_the_nodes_of_a_function(tmp_path: pathlib.Path) -> None:
    text = """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        y = PartitionedCall([x, w], f=@f, Tout=[f32])
        @f(a: f32, b: f32) -> (c=m)
          m = MatMul(a, b)
    """
    rules = file_with(tmp_path, '[[rule]]\nfunction = "^f$"\nop = "MatMul"\ncategory = "keep"\n')
    report = rewrite_graph(graph_text.parse(text), rules=rules)

    assert precisions(report, "m") == "float32"
    assert entry_of(report, "m").kind == "USER"


def test_rules_that_match_nothing_are_named(tmp_path: pathlib.Path) -> None:
    rules = file_with(
        tmp_path,
        """
        [[rule]]
        op = ["Conv2D", "Exp"]
        category = "deny"
        [[rule]]
        node = "attention"
        category = "keep"
        """,
    )
    assert rewrite(rules=rules).warnings == (
        f"rules file {rules} rule 1 names op `Conv2D`, which no float32 node of the model has",
        f"rules file {rules} rule 2 matches no float32 node",
    )


def test_an_attribute_that_no_node_has_is_named(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nop = "Exp"\ncategory = "infer"\nattrs = "Tx"\n')

    assert rewrite(rules=rules).warnings == (
        f"rules file {rules} rule 1 has attribute `Tx`, which no node that it matches has",
    )


@pytest.mark.parametrize(("compute", "precision"), [("low", "float32"), ("float32", "half")])
def test_compute_says_whether_limits_on_sums_hold(
    compute: str, precision: str, tmp_path: pathlib.Path
) -> None:
    text = """
        x: f32[1,64,64,2] = Placeholder
        w: f32[1,1,2,2] = Const(seed=1)
        c = Conv2D(x, w, strides=[1, 1, 1, 1], padding="VALID")
        p = AvgPool(c, ksize=[1, 64, 64, 1], strides=[1, 1, 1, 1], padding="VALID")
        d = Conv2D(p, w, strides=[1, 1, 1, 1], padding="VALID")
        y = Identity(d)
    """
    rule = f'[[rule]]\nop = "AvgPool"\ncategory = "infer"\ncompute = "{compute}"\n'
    report = rewrite_graph(graph_text.parse(text), rules=file_with(tmp_path, rule))

    assert precisions(report, "c p d") == f"half {precision} half"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('op = "Exp"\ncategry = "deny"', "unknown key `categry`"),
        ('op = "Exp"\ncategory = "black"', "`category` is `black`, expected one of `allow`"),
        ("op = 3", "`op` is `3`, expected a string or a list of strings"),
        ("op = []", "`op` is `[]`"),
        ('node = "("\ncategory = "keep"', "`node` is `(`, which is no regular expression"),
        ('op = "Exp"\nforce_low = false', "`force_low` is `False`, expected `true`"),
        ('op = "Exp"', "has neither of `category` and `force_low`"),
        ('op = "Exp"\nforce_low = true\ncategory = "deny"', "has both of `category`"),
        ('category = "deny"', "names no `op`, `node` or `function`"),
        ('op = "Exp"\ncategory = "deny"\ndtype = "fp16"', "`dtype` is `fp16`, expected one of"),
        ('op = "Exp"\ncategory = "deny"\ndevice = "tpu"', "`device` is `tpu`, expected one of"),
        ('op = "Const"\nsaturate = 1', "`saturate` is `1`, expected `true` or `false`"),
        ('op = "Const"\nmax_loss = true', "`max_loss` is `True`, expected a number from 0 to 1"),
        ('op = "Const"\nmax_loss = nan', "`max_loss` is `nan`, expected a number from 0 to 1"),
        ('op = "Const"\nmax_loss = 0.1\noutput = "low"', "`output` needs a `category`"),
        ('op = "Exp"\ncategory = "allow"\noutput = "float32"', "a kernel of TensorFlow gives"),
        ('op = "Exp"\ncategory = "deny"\ncompute = "low"', "`compute` is `low` with category"),
        ('op = "Exp"\ncategory = "keep"\noutput = "half"', "`output` is `half`, expected `low`"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(
    text: str, message: str, tmp_path: pathlib.Path
) -> None:
    path = file_with(tmp_path, f'[[rule]]\nop = "Exp"\ncategory = "deny"\n\n[[rule]]\n{text}\n')
    with pytest.raises(errors.FlagError) as caught:
        rules_file.read(path)

    assert str(caught.value).startswith(f"{path}: rule 2 (line 5): ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule", "the rules file is no TOML"),
        ("[[rules]]\nop = 'Exp'", "key `rules` stands outside of a rule"),
        ("rule = 3", "`rule` is no list of tables"),
    ],
)
def test_a_damaged_file_is_refused(text: str, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.FlagError, match=re.escape(message)):
        rules_file.read(file_with(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.FlagError, match="the rules file can't be read: No such file"):
        rewrite(rules=str(tmp_path / "none.toml"))


def test_the_example_of_the_readme_is_valid(tmp_path: pathlib.Path) -> None:
    example = re.search(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None

    assert len(rules_file.read(file_with(tmp_path, example[1]))) == example[1].count("[[rule]]")


# --- flags ---------------------------------------------------------------------------------------


def test_a_flag_is_stronger_than_the_file_and_one_warning_says_so(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nop = "MatMul"\ncategory = "allow"\n')
    report = rewrite(rules=rules, deny_ops=("MatMul",))

    assert precisions(report, "m block/n") == "float32 float32"
    assert entry_of(report, "m").source == "--deny_ops"
    expected = (
        f"`--deny_ops` and `rules file {rules} rule 1` contradict each other on `m`, `block/n`: "
        "`--deny_ops` wins"
    )
    assert report.warnings == (expected,)


def test_force_low_beats_category_and_taint() -> None:
    report = rewrite(force_low=("^e$", "^t$"))

    assert precisions(report, "m e t block/n") == "half half half half"
    assert entry_of(report, "t").source == "--force_low ^t$"
    assert report.warnings == ()


def test_force_low_in_a_file(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nop = "Exp"\nforce_low = true\n')

    assert precisions(rewrite(rules=rules), "e") == "half"


def test_force_low_says_what_it_could_not_make_low() -> None:
    graph = graph_text.parse(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        big: f32[] = Const(1e6)
        m = MatMul(x, w)
        a = AddV2(m, big)      # the constant overflows
        s = MatrixInverse(m)   # no kernel
        z = AddV2(a, s)
        y = Identity(z)        # fetched
        """
    )
    report = rewrite_graph(graph, force_low=("^[asy]$",))

    assert precisions(report, "a s y") == "float32 float32 float32"
    [warning] = report.warnings
    assert warning.startswith("`force_low` leaves float32: `a` (")
    assert "`s` (no half kernel on GPU and CPU both)" in warning
    assert "`y` (" in warning


def test_force_low_that_matches_nothing_is_named() -> None:
    assert rewrite(force_low=("attention",)).warnings == (
        "`force_low` pattern `attention` matches no float32 node",
    )


def test_keeping_and_forcing_the_same_node_is_an_error() -> None:
    with pytest.raises(errors.FlagError) as caught:
        rewrite(force_low=("block",), keep_float32=("n$",))

    assert str(caught.value).startswith(
        "block/n: `--keep_float32 n$` and `--force_low block` both match this node"
    )


# --- environment ---------------------------------------------------------------------------------


def test_a_variable_moves_an_op_by_remove_and_add() -> None:
    moved = lists(DENYLIST_REMOVE="Exp", INFERLIST_ADD="Exp")
    report = rewrite(grappler_lists=moved)

    assert precisions(report, "e") == "half"
    assert entry_of(report, "e").source == f"environment: {PREFIX}INFERLIST_ADD"
    assert report.warnings == ()


def test_an_op_that_is_removed_is_on_no_list() -> None:
    report = rewrite(grappler_lists=lists(BLACKLIST_REMOVE="Exp"))

    entry = entry_of(report, "e")
    assert (entry.precision, entry.kind) == ("float32", "USER")
    assert entry_of(report, "t").kind != "TAINTED"


def test_the_environment_is_stronger_than_a_flag() -> None:
    moved = lists(CLEARLIST_REMOVE="Exp", ALLOWLIST_ADD="Exp")
    report = rewrite(clear_ops=("Exp",), grappler_lists=moved)

    assert entry_of(report, "e").source == f"environment: {PREFIX}ALLOWLIST_ADD"
    assert [w for w in report.warnings if "contradict each other on `e`" in w] != []


@pytest.mark.parametrize(
    "variables",
    [{"ALLOWLIST_ADD": "Exp"}, {"ALLOWLIST_ADD": "MyOp", "GRAYLIST_ADD": "MyOp"}],
)
def test_an_op_on_two_lists_is_an_error(variables: dict[str, str]) -> None:
    with pytest.raises(errors.FlagError, match="conflicting entries: "):
        rewrite(grappler_lists=lists(**variables))


def test_what_a_variable_does_not_change_is_told() -> None:
    given = lists(ALLOWLIST_REMOVE="Exp", LEVEL="UNSAFE_FORCE_ALL", CLEARLIST_ADD="MyOp")

    assert rewrite(grappler_lists=given).warnings == (
        f"`{PREFIX}ALLOWLIST_REMOVE` removes `Exp`, not on the allow list",
        f"`{PREFIX}LEVEL` is `UNSAFE_FORCE_ALL`, which means nothing here",
        f"`{PREFIX}CLEARLIST_ADD` names op `MyOp`, which no float32 node of the model has",
    )


# --- Python --------------------------------------------------------------------------------------


@pytest.fixture
def clean_registry() -> Iterator[None]:
    yield
    for rule in registry.registered():
        registry.unregister_rule(rule.op)


@pytest.fixture
def custom_graph() -> graph_pb2.GraphDef:
    """m -> MyOp (which TensorFlow does not know) -> block/n."""
    graph = graph_text.parse(NETWORK)
    node = next(node for node in graph.node if node.name == "t")
    node.op = "MyOp"
    node.input[:] = ["m", "count"]
    del [n for n in graph.node if n.name == "e"][:]
    graph.node.add(name="count", op="Const")
    graph.node[-1].attr["dtype"].type = types_pb2.DT_INT32
    graph.node[-1].attr["value"].tensor.dtype = types_pb2.DT_INT32
    graph.node[-1].attr["value"].tensor.tensor_shape.SetInParent()
    graph.node[-1].attr["value"].tensor.int_val.append(3)
    return graph


def test_an_op_that_nobody_knows_stays_float32(custom_graph: graph_pb2.GraphDef) -> None:
    report = rewrite_graph(custom_graph)

    assert report.warnings == ("no rule knows these ops, so they stay float32: `MyOp` (1)",)


@pytest.mark.usefixtures("clean_registry")
def test_a_registered_rule_describes_and_lowers_a_custom_op(
    custom_graph: graph_pb2.GraphDef,
) -> None:
    seen = []

    @tf_amp_rewriter.register_rule("MyOp", inputs=("T", "int32"), outputs=("T",))
    def my_op(facts: object) -> tf_amp_rewriter.OpRule:
        seen.append(facts.node.name)  # type: ignore[attr-defined]
        return tf_amp_rewriter.OpRule("infer", compute="float32", reason="its kernel is templated")

    report = rewrite_graph(custom_graph)

    assert set(seen) == {"t"}
    assert precisions(report, "m t block/n") == "half half half"
    assert entry_of(report, "t").source == "register_rule: its kernel is templated"
    assert report.warnings == ()
    assert report.graph_def is not None
    [node] = [node for node in report.graph_def.node if node.name == "t"]
    assert node.attr["T"].type == types_pb2.DT_HALF


@pytest.mark.usefixtures("clean_registry")
def test_a_registered_rule_is_the_strongest() -> None:
    tf_amp_rewriter.register_rule("MatMul")(lambda _: tf_amp_rewriter.OpRule("keep"))
    report = rewrite(allow_ops=("MatMul",))

    assert entry_of(report, "m").source == "register_rule"
    assert precisions(report, "m") == "float32"
    assert len(report.warnings) == 1


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(
    ("decide", "message"),
    [
        (lambda _: "infer", "returned `'infer'`, expected an `OpRule`"),
        (lambda _: 1 / 0, "failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_registered_rule_that_fails_is_named(decide: registry.Decide, message: str) -> None:
    registry.register_rule("Exp")(decide)
    with pytest.raises(errors.FlagError) as caught:
        rewrite()

    assert str(caught.value) == f"e: the registered rule of op `Exp` {message}"


def test_the_definition_of_a_custom_op_may_forbid_the_dtype() -> None:
    own = op_def_pb2.OpDef(name="MyOp")
    own.attr.add(name="T", type="type").allowed_values.list.type.append(types_pb2.DT_FLOAT)
    own.attr.add(name="U", type="type")

    assert op_defs.forbids("MyOp", "T", dtypes.HALF, {"MyOp": own}) == (
        "the definition of op `MyOp` does not allow half for attribute `T`"
    )
    assert op_defs.forbids("MyOp", "U", dtypes.HALF, {"MyOp": own}) == ""


@pytest.mark.usefixtures("clean_registry")
def test_wrong_registrations() -> None:
    rule = tf_amp_rewriter.OpRule("keep")
    registry.register_rule("MyOp")(lambda _: rule)
    with pytest.raises(errors.FlagError, match="has a registered rule already"):
        registry.register_rule("MyOp")(lambda _: rule)
    with pytest.raises(errors.FlagError, match="needs both `inputs` and `outputs`"):
        registry.register_rule("Other", inputs=("T",))
    with pytest.raises(errors.FlagError, match="op `Other` has no registered rule"):
        registry.unregister_rule("Other")
    with pytest.raises(errors.FlagError, match="an OpRule's `category` is `black`"):
        tf_amp_rewriter.OpRule("black")


# --- missing_op ----------------------------------------------------------------------------------


def test_missing_ops_are_refused_or_ignored(custom_graph: graph_pb2.GraphDef) -> None:
    with pytest.raises(errors.InputError, match=re.escape("no rule knows these ops")):
        rewrite_graph(custom_graph, missing_op="error")

    assert rewrite_graph(custom_graph, missing_op="ignore").warnings == ()


# --- command line --------------------------------------------------------------------------------


def run(folder: pathlib.Path, graph: graph_pb2.GraphDef, *flags: str) -> int:
    (folder / "in.pb").write_bytes(graph.SerializeToString())
    paths = ("--graph_def", str(folder / "in.pb"), "--output_graph_def", str(folder / "out.pb"))
    return cli.main(["tf_amp_rewriter", *paths, "--outputs=y", *flags])


def test_the_command_line_reads_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"{PREFIX}ALLOWLIST_ADD", "Exp")

    assert run(tmp_path, graph_text.parse(NETWORK)) == 1
    assert "conflicting entries" in capsys.readouterr().err
    assert not (tmp_path / "out.pb").exists()


def test_the_command_line_refuses_contradicting_patterns(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, graph_text.parse(NETWORK), "--force_low=^m$", "--keep_float32=m") == 1
    assert "both match this node" in capsys.readouterr().err
    assert not (tmp_path / "out.pb").exists()


def test_the_command_line_names_the_wrong_rule(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = file_with(tmp_path, '[[rule]]\nop = "Exp"\ncategory = "black"\n')

    assert run(tmp_path, graph_text.parse(NETWORK), "--rules", rules) == 1
    assert f"error: {rules}: rule 1 (line 1): `category` is `black`" in capsys.readouterr().err


def test_the_command_line_refuses_missing_ops(
    tmp_path: pathlib.Path, custom_graph: graph_pb2.GraphDef, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, custom_graph, "--missing_op=error") == 2
    assert "`MyOp` (1)" in capsys.readouterr().err
    assert not (tmp_path / "out.pb").exists()


# --- weights -------------------------------------------------------------------------------------

WEIGHTS = """
    x: f32[2,2] = Placeholder
    v: f32[2,2] = Const([[1e5, 1], [-2e5, 3]])
    w: f32[2,2] = Const([[1e5, 1], [2, 3]])
    m = MatMul(x, v)
    n = MatMul(x, w)
    y = AddV2(m, n)
"""


def constant(report: model.Report, node: str) -> list[list[float]]:
    assert report.graph_def is not None
    (found,) = (n for n in report.graph_def.node if n.name == node)
    return tf.make_ndarray(found.attr["value"].tensor).tolist()


def test_a_rule_clamps_a_weight_without_the_flag(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nnode = "^v$"\nsaturate = true\n')
    report = rewrite_graph(graph_text.parse(WEIGHTS), rules=rules)

    assert precisions(report, "v w m n") == "half float32 half float32"
    assert constant(report, "v") == [[65504, 1], [-65504, 3]]
    assert report.warnings == ("1 weight was clamped, as `saturate` asks: `v` to 65504",)


def test_a_rule_keeps_a_weight_from_the_flag(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nnode = "^v$"\nsaturate = false\n')
    report = rewrite_graph(graph_text.parse(WEIGHTS), rules=rules, saturate=True)

    assert precisions(report, "v w m n") == "float32 half float32 half"
    assert constant(report, "v") == [[100000, 1], [-200000, 3]]
    assert entry_of(report, "v").kind == "RANGE"


def test_of_rules_for_a_weight_the_last_that_says_it_wins(tmp_path: pathlib.Path) -> None:
    rules = file_with(
        tmp_path,
        """
        [[rule]]
        op = "Const"
        saturate = true
        [[rule]]
        node = "^[vw]$"
        max_loss = 0.5
        [[rule]]
        node = "^w$"
        saturate = false
        """,
    )
    report = rewrite_graph(graph_text.parse(WEIGHTS), rules=rules)

    assert precisions(report, "v w") == "half float32"


@pytest.mark.parametrize(("share", "precision"), [("0.3", "half"), ("0.1", "float32")])
def test_max_loss_is_what_rounding_may_cost(
    share: str, precision: str, tmp_path: pathlib.Path
) -> None:
    # 7e-8 lies between the subnormals 2**-24 = 5.96e-8 and twice that: rounding costs 15 %.
    graph = graph_text.parse(
        """
        x: f32[2,2] = Placeholder
        w: f32[2,2] = Const([[7e-8, 7e-8], [7e-8, 7e-8]])
        m = MatMul(x, w)
        y = Identity(m)
        """
    )
    rules = file_with(tmp_path, f'[[rule]]\nop = "Const"\nmax_loss = {share}\n')

    assert precisions(rewrite_graph(graph, rules=rules), "w") == precision
    assert precisions(rewrite_graph(graph), "w") == "float32"


class _Scaled(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = tf.Variable([[1e5, 1.0], [2.0, 3.0]], name="v")
        self.w = tf.Variable([[1e5, 1.0], [2.0, 3.0]], name="w")

    @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32)])
    def serve(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, self.v) + tf.matmul(x, self.w)


def test_a_rule_clamps_a_variable(tmp_path: pathlib.Path) -> None:
    module = _Scaled()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.serve)
    rules = file_with(tmp_path, '[[rule]]\nop = "VarHandleOp"\nnode = "^v$"\nsaturate = true\n')

    report = tf_amp_rewriter.decide_saved_model(
        tmp_path / "in", tf_amp_rewriter.Options(rules=rules)
    )

    found = {weight.name.partition("/")[0]: weight.precision for weight in report.weights}
    assert found == {"v": "half", "w": "float32"}


def test_a_rule_for_weights_that_matches_none_is_named(tmp_path: pathlib.Path) -> None:
    rules = file_with(tmp_path, '[[rule]]\nop = "MatMul"\nsaturate = true\n')

    assert rewrite(rules=rules).warnings == (
        f"rules file {rules} rule 1 matches no float32 weight",
    )


def test_a_registered_rule_for_an_op_that_the_model_lacks_is_named() -> None:
    @tf_amp_rewriter.register_rule("Conv2D")
    def _(facts: tf_amp_rewriter.NodeFacts) -> tf_amp_rewriter.OpRule:
        return tf_amp_rewriter.OpRule("keep", reason=facts.node.name)

    try:
        warnings = rewrite().warnings
    finally:
        tf_amp_rewriter.unregister_rule("Conv2D")

    assert warnings == ("`register_rule` names `Conv2D`, which no float32 node of the model has",)
