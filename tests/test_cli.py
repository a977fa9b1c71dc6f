from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable

import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import fake_reports, golden_files, graph_text
from tf_amp_rewriter import cli, errors, flag_table, options, quiet
from tf_amp_rewriter.report import json_file, model, rule_table, terminal

ROOT = pathlib.Path(__file__).parent.parent
SEE_HELP = "hint: `tf_amp_rewriter --help` lists the flags\n"
SAVED_MODEL = ("--saved_model_dir", "in", "--output_dir", "out")
GRAPH_DEF = ("--graph_def", "in.pb", "--output_graph_def", "out.pb", "--outputs", "y")


class FakePipeline(types.ModuleType):
    """Stands for `pipeline`: keeps what it is called with, gives a report or raises."""

    def __init__(self) -> None:
        super().__init__("tf_amp_rewriter.pipeline")
        self.calls: list[tuple[str, str, str, options.Options]] = []
        self.report = fake_reports.LOWERED
        self.error: BaseException | None = None
        self.rewrite_saved_model = self._function("saved_model")
        self.rewrite_frozen_graph = self._function("frozen_graph")
        self.decide_saved_model = self._decision("saved_model")
        self.decide_frozen_graph = self._decision("frozen_graph")

    def _function(self, kind: str) -> Callable[[str, str, options.Options], model.Report]:
        def rewrite(source: str, destination: str, opts: options.Options) -> model.Report:
            self.calls.append((kind, source, destination, opts))
            if self.error:
                raise self.error
            return self.report

        return rewrite

    def _decision(self, kind: str) -> Callable[[str, options.Options], model.Report]:
        rewrite = self._function(kind)
        return lambda source, opts: rewrite(source, "", opts)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()
    monkeypatch.setitem(sys.modules, "tf_amp_rewriter.pipeline", fake)
    monkeypatch.setattr(tf_amp_rewriter, "pipeline", fake, raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"))
    return fake


def run(*arguments: str) -> int:
    return cli.main(["tf_amp_rewriter", *arguments])


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


# --- flags ---------------------------------------------------------------------------------------


def test_the_flags_are_the_fields_of_options() -> None:
    fields = {field.name for field in dataclasses.fields(options.Options)}

    # of these the first is read from the environment, and the pipeline gathers the others
    data = {"grappler_lists", "file_rules", "registered"}
    assert fields - data == {row.name for row in flag_table.FLAGS if row.is_option}


def test_no_flag_is_there_twice() -> None:
    names = [row.name for row in flag_table.FLAGS]

    assert sorted(set(names)) == sorted(names)


def test_every_flag_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [row.name for row in flag_table.FLAGS if f"`--{row.name}" not in readme] == []


def test_defaults_are_those_of_options(pipeline: FakePipeline) -> None:
    assert run(*SAVED_MODEL) == 0
    assert pipeline.calls == [("saved_model", "in", "out", options.Options())]


def test_every_option_arrives(pipeline: FakePipeline) -> None:
    status = run(
        *SAVED_MODEL,
        "--dtype=bfloat16",
        "--device=gpu",
        "--tags=serve,gpu",
        "--overwrite",
        "--allow_ops=A",
        "--infer_ops=I,J",
        "--clear_ops=C",
        "--deny_ops=D",
        "--keep_float32=a,b",
        "--keep_float32=c{1,2}",
        "--force_low=d,e",
        "--force_low=f",
        "--rules=amp.toml",
        "--missing_op=error",
    )

    assert status == 0
    assert pipeline.calls[0][3] == options.Options(
        dtype="bfloat16",
        device="gpu",
        tags=("serve", "gpu"),
        overwrite=True,
        allow_ops=("A",),
        infer_ops=("I", "J"),
        clear_ops=("C",),
        deny_ops=("D",),
        keep_float32=("a,b", "c{1,2}"),
        force_low=("d,e", "f"),
        rules="amp.toml",
        missing_op="error",
    )


def test_a_frozen_graph_goes_to_its_own_function(pipeline: FakePipeline) -> None:
    assert run(*GRAPH_DEF, "--inputs", "a,b:1") == 0
    assert pipeline.calls == [
        ("frozen_graph", "in.pb", "out.pb", options.Options(inputs=("a", "b:1"), outputs=("y",)))
    ]


def test_a_call_leaves_nothing_behind_for_the_next(pipeline: FakePipeline) -> None:
    run(*SAVED_MODEL, "--overwrite", "--keep_float32=x", "--deny_ops=Exp")
    run(*SAVED_MODEL)

    assert pipeline.calls[1][3] == options.Options()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "found neither of `--saved_model_dir` and `--graph_def`, expected one\n" + SEE_HELP,
        ),
        (
            (*SAVED_MODEL, *GRAPH_DEF),
            "found both of `--saved_model_dir` and `--graph_def`, expected one\n" + SEE_HELP,
        ),
        (("--saved_model_dir=in",), "`--saved_model_dir` needs `--output_dir`\n" + SEE_HELP),
        (("--graph_def=in",), "`--graph_def` needs `--output_graph_def`\n" + SEE_HELP),
        (GRAPH_DEF[:4], "`--graph_def` needs `--outputs`\n" + SEE_HELP),
        (
            (*SAVED_MODEL, "--outputs=y"),
            "`--outputs` does not go with `--saved_model_dir`\n" + SEE_HELP,
        ),
        ((*GRAPH_DEF, "--tags=serve"), "`--tags` does not go with `--graph_def`\n" + SEE_HELP),
        (
            (*SAVED_MODEL, "--explain=x", "--report_json=-"),
            (
                "`--explain` and `--report_json -` both go to standard output\n"
                "hint: give a file for the report\n"
            ),
        ),
        (
            (*SAVED_MODEL, "--explain=("),
            (
                "`explain` has `(`, which is no regular expression: "
                "missing ), unterminated subpattern at position 0\n"
            ),
        ),
        (
            ("--graph_def=in.pb", "--explain=x"),
            "`--graph_def` needs `--outputs`\n" + SEE_HELP,
        ),
        (
            ("--list_rules", "MatMull"),
            (
                "`list_rules` names op `MatMull`, which no rule knows\n"
                "hint: did you mean `MatMul` or `BatchMatMul` or `SparseMatMul`?\n"
            ),
        ),
        ((*SAVED_MODEL, "more", "less"), "found `more`, `less`, expected flags only\n" + SEE_HELP),
        ((*SAVED_MODEL, "--dtyp=half"), "unknown flag `--dtyp`\nhint: did you mean `--dtype`?\n"),
        ((*SAVED_MODEL, "--qqq"), "unknown flag `--qqq`\n" + SEE_HELP),
        ((*SAVED_MODEL, "--dtype"), "Missing value for flag --dtype\n" + SEE_HELP),
        (
            (*SAVED_MODEL, "--dtype=fp16"),
            "`dtype` is `fp16`, expected one of `half`, `bfloat16`\n",
        ),
        (
            (*SAVED_MODEL, "--allow_ops=Exp", "--deny_ops=Exp"),
            "op `Exp` is in `allow_ops` and in `deny_ops`\nhint: leave it in one of them\n",
        ),
    ],
)
def test_wrong_flags(
    arguments: tuple[str, ...],
    message: str,
    pipeline: FakePipeline,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = run(*arguments)

    assert status == 1
    assert capsys.readouterr() == ("", f"error: {message}")
    assert pipeline.calls == []


# --- help and version ----------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h", "-help"])
def test_help_is_no_error(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flag) == 0
    assert capsys.readouterr() == (flag_table.help_text(), "")


def test_help_text() -> None:
    golden_files.expect_golden("help.txt", flag_table.help_text())


def test_help_fits_a_terminal() -> None:
    assert [line for line in flag_table.help_text().splitlines() if len(line) > 100] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tf_amp_rewriter {tf_amp_rewriter.__version__}\n"


@pytest.mark.parametrize(
    "code",
    [
        "import tf_amp_rewriter; tf_amp_rewriter.Options(); tf_amp_rewriter.Report",
        "from tf_amp_rewriter import cli; assert cli.main(['x', '--help']) == 0",
        "from tf_amp_rewriter import cli; assert cli.main(['x', '--dtyp=half']) == 1",
        "from tf_amp_rewriter import cli; assert cli.main(['x', '--list_rules', 'Exp']) == 0",
        "from tf_amp_rewriter import cli; assert cli.main(['x', '--list_rules', 'Exq']) == 1",
        (
            "from tf_amp_rewriter import cli; assert cli.main("
            "'x --saved_model_dir a --output_dir b --dtype int8'.split()) == 1"
        ),
    ],
)
def test_tensorflow_is_not_imported(code: str) -> None:
    done = run_alone(f"import sys; {code}; assert 'tensorflow' not in sys.modules")

    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)


def test_importing_prints_nothing() -> None:
    done = run_alone("import tf_amp_rewriter, tf_amp_rewriter.cli")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_stderr_has_our_lines_only() -> None:
    environment = {name: v for name, v in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-m", "tf_amp_rewriter", "--saved_model_dir=nix", "--output_dir=nax"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    kinds = {line.split(":")[0] for line in done.stderr.splitlines()}
    assert {"error"} <= kinds <= {"error", "hint"}


def test_python_m_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tf_amp_rewriter", "--dtyp=half"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "error: unknown flag `--dtyp`\nhint: did you mean `--dtype`?\n"


def test_the_public_names_are_there() -> None:
    assert set(tf_amp_rewriter.__all__) <= set(dir(tf_amp_rewriter))
    assert callable(tf_amp_rewriter.rewrite_saved_model)
    assert callable(tf_amp_rewriter.rewrite_graph_def)
    assert callable(tf_amp_rewriter.decide_saved_model)
    assert callable(tf_amp_rewriter.explain)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module `tf_amp_rewriter` has no attribute `nix`$"):
        tf_amp_rewriter.nix  # noqa: B018 # asking for it is the test


# --- rules and explanations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("--list_rules", "Mean", "Exp"), ("--list_rules=Mean", "Exp")]
)
def test_rules_are_listed_on_stdout(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 0
    assert capsys.readouterr() == (rule_table.text(["Mean", "Exp"]), "")


def test_all_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list_rules") == 0
    assert capsys.readouterr() == (rule_table.text(), "")


@pytest.fixture
def frozen(tmp_path: pathlib.Path) -> tuple[str, ...]:
    """The flags for a frozen graph of one product."""
    graph = graph_text.parse(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)
        out = Identity(m)
        """
    )
    path = tmp_path / "in.pb"
    path.write_bytes(graph.SerializeToString())
    return (f"--graph_def={path}", "--outputs=out")


EXPLAINED = """\
MatMul `m`
  precision  half   (T)
  reason     ALLOW: it gains the most in low precision
  rule       MatMul is ALLOW, compute float32, output low: always gains from low precision; source: grappler allow
  to change  --keep_float32 '^m$'   keeps this node float32
"""  # noqa: E501 # a picture


def test_explaining_needs_no_output_and_writes_nothing(
    frozen: tuple[str, ...], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*frozen, "--explain=m") == 0
    assert capsys.readouterr() == (EXPLAINED, "")
    assert [path.name for path in tmp_path.iterdir()] == ["in.pb"]


def test_explaining_a_saved_model_writes_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((4, 8), tf.float32)])
        def serve(self, x: tf.Tensor) -> tf.Tensor:
            return tf.linalg.matmul(x, tf.eye(8), name="product") + 1.0

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.serve)
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    assert run(f"--saved_model_dir={tmp_path / 'in'}", "--explain=product$") == 0
    told = capsys.readouterr()
    assert told.out.startswith("MatMul `product` in function `__inference_serve_")
    assert told.err == ""
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_explaining_goes_with_an_output_and_comes_after_it(
    frozen: tuple[str, ...], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.pb"

    assert run(*frozen, f"--output_graph_def={output}", "--explain=m", "--explain=^m") == 0
    told = capsys.readouterr()
    assert told.out == EXPLAINED
    assert f"written to `{output}`" in told.err
    assert output.exists()


def test_nothing_to_explain_is_an_error(
    frozen: tuple[str, ...], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.pb"

    assert run(*frozen, "--explain=outt") == 1
    assert capsys.readouterr() == (
        "",
        "error: `explain` has `outt`, which matches no node\nhint: did you mean `out`?\n",
    )
    assert run(*frozen, f"--output_graph_def={output}", "--explain=outt") == 1
    assert capsys.readouterr().err.endswith(
        f"hint: did you mean `out`?\nthe model itself is complete: `{output}`\n"
    )


def test_a_decision_without_writing_can_be_reported_as_json(
    frozen: tuple[str, ...], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"

    assert run(*frozen, "--explain=m", f"--report_json={path}") == 0
    assert capsys.readouterr().out == EXPLAINED
    assert json.loads(path.read_text(encoding="utf-8"))["destination"] == ""


# --- what is told --------------------------------------------------------------------------------


def test_the_summary_goes_to_stderr(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*SAVED_MODEL)

    assert capsys.readouterr() == ("", terminal.summary(pipeline.report))


def test_the_report_goes_to_stdout_alone(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SAVED_MODEL, "--report_json=-") == 0
    assert capsys.readouterr().out == json_file.to_json(pipeline.report)


@pytest.mark.usefixtures("pipeline")
def test_the_report_goes_to_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"

    assert run(*SAVED_MODEL, f"--report_json={path}") == 0
    assert json.loads(path.read_text(encoding="utf-8"))["dtype"] == "half"


def test_a_report_that_can_not_be_written_is_refused_before_the_work(
    tmp_path: pathlib.Path, pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nix" / "report.json"

    assert run(*SAVED_MODEL, f"--report_json={path}") == 4
    assert pipeline.calls == []
    assert capsys.readouterr().err == (
        f"error: {path}: can't be written: `{path.parent}` is not a directory that can be written "
        "to\nhint: make it, or give another `--report_json`\n"
    )


def test_a_report_that_is_a_directory_is_refused(
    tmp_path: pathlib.Path, pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SAVED_MODEL, f"--report_json={tmp_path}") == 4
    assert pipeline.calls == []
    assert capsys.readouterr().err == (
        f"error: {tmp_path}: is a directory, expected a file for the report\n"
    )


def test_a_full_disk_under_the_report_says_that_the_model_is_complete(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")

    assert run(*SAVED_MODEL, "--report_json=/dev/full") == 4
    assert capsys.readouterr().err == terminal.summary(pipeline.report) + (
        "error: /dev/full: the report can't be written: No space left on device\n"
        "hint: the model itself is complete: `out`\n"
    )


def test_lowering_nothing_exits_0_and_says_so(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.report = fake_reports.KEPT_ALL

    assert run(*SAVED_MODEL) == 0
    assert capsys.readouterr().err.startswith("NOTHING WAS LOWERED: ")


def test_what_was_hidden_is_shown_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet.quiet_stderr():
        os.write(2, b"chatter\n")

    def fail() -> None:
        with quiet.quiet_stderr():
            os.write(2, b"the cause\n")
            raise ImportError

    with pytest.raises(ImportError):
        fail()

    assert capfd.readouterr().err == "the cause\n"


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.FlagError("m", "h", "p"), 1),
        (errors.InputError("m", "h", "p", "s", "n"), 2),
        (errors.OutputError("m", "h", "p"), 4),
    ],
)
def test_an_error_shows_where_what_and_what_to_do(
    error: errors.RewriteError,
    status: int,
    pipeline: FakePipeline,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipeline.error = error

    assert run(*SAVED_MODEL) == status
    place = "p: s/n: m" if status == 2 else "p: m"
    assert capsys.readouterr() == ("", f"error: {place}\nhint: h\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.InternalError("two types on one edge", node="a"), "a: two types on one edge"),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_our_own_fault_is_said_to_be_ours(
    error: Exception,
    message: str,
    pipeline: FakePipeline,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipeline.error = error

    assert run(*SAVED_MODEL) == 5
    (path,) = tmp_path.iterdir()
    assert capsys.readouterr().err == (
        f"error: internal error: {message}\n"
        f"hint: this is a bug of tf_amp_rewriter {tf_amp_rewriter.__version__}, not of your model; "
        "nothing was published. Please open an issue with this message, the traceback and, if "
        "possible, the model's saved_model.pb (the graph without its weights).\n"
        f"hint: the traceback is in {path}\n"
    )
    saved = path.read_text(encoding="utf-8")
    assert "Traceback (most recent call last):" in saved
    assert f"arguments: {list(SAVED_MODEL)}" in saved


def test_the_traceback_is_printed_where_it_can_not_be_saved(
    pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nix/da")
    pipeline.error = KeyError("x")

    assert run(*SAVED_MODEL) == 5
    assert "Traceback (most recent call last):" in capsys.readouterr().err


@pytest.mark.usefixtures("pipeline")
def test_a_fault_in_the_report_does_not_claim_that_nothing_was_published(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: model.Report) -> str:
        raise ZeroDivisionError("0")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(terminal, "summary", fail)

    assert run(*SAVED_MODEL) == 5
    told = capsys.readouterr().err
    assert "the report can't be made: ZeroDivisionError: 0\n" in told
    assert "not of your model; the output is complete." in told


def test_an_interrupt_ends_with_130(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.error = KeyboardInterrupt()

    assert run(*SAVED_MODEL) == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")
