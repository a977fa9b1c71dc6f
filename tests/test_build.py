"""BUILD covers every file and agrees with the imports; a wheel has the right metadata."""

from __future__ import annotations

import ast
import dataclasses
import email.message
import email.parser
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator

import pytest

import tf_amp_rewriter

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "tf_amp_rewriter"


@dataclasses.dataclass(frozen=True)
class Target:
    """A py_* target of BUILD."""

    rule: str
    name: str
    srcs: tuple[str, ...]
    deps: frozenset[str]


def glob(include: Iterable[str], exclude: Iterable[str] = ()) -> list[str]:
    """Bazel's `glob`, as far as BUILD needs it."""
    excluded = {path for pattern in exclude for path in ROOT.glob(pattern)}
    found = {path for pattern in include for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(str(path.relative_to(ROOT)) for path in found - excluded)


def read_build() -> tuple[list[Target], list[str]]:
    """Runs BUILD, whose Starlark is Python too; returns its targets and the order of the layers."""
    targets: list[Target] = []

    def rule(kind: str) -> object:
        def add(*, name: str, srcs: list[str], deps: list[str], **_: object) -> None:
            lower = frozenset(dep.removeprefix(":") for dep in deps)
            targets.append(Target(kind, name, tuple(srcs), lower))

        return add

    names: dict[str, object] = {kind: rule(kind) for kind in ("py_binary", "py_library", "py_test")}
    names |= dict.fromkeys(("load", "package", "licenses"), lambda *_, **__: None)
    names["glob"] = glob
    exec((ROOT / "BUILD").read_text(encoding="utf-8"), names)
    layers = names["LAYERS"]
    assert isinstance(layers, dict)
    return targets, list(layers)


TARGETS, LAYERS = read_build()
OWNER = {
    source: target.name
    for target in TARGETS
    for source in target.srcs
    if source.startswith(f"{PACKAGE}/")
}


def imported_modules(path: pathlib.Path, package: str = PACKAGE) -> Iterator[str]:
    """Gives the dotted names of a package's modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(package))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def source_of(module: str) -> str:
    """Returns the file of `a.b.c`, where `c` may be a name in the module `a.b`."""
    parts = module.split(".")
    for path in ("/".join(parts) + ".py", "/".join(parts[:-1]) + ".py"):
        if (ROOT / path).is_file():
            return path
    return "/".join([*parts[:-1], "__init__.py"])


def imports_of(target: Target) -> set[str]:
    owners = {
        OWNER[source_of(module)]
        for source in target.srcs
        for module in imported_modules(ROOT / source)
    }
    return owners - {target.name}


def test_every_source_file_is_in_one_library() -> None:
    covered = [source for target in TARGETS for source in target.srcs if source.startswith(PACKAGE)]

    assert sorted(covered) == glob([f"{PACKAGE}/**/*.py"])


def test_every_test_file_has_a_target() -> None:
    tests = {target.srcs for target in TARGETS if target.rule == "py_test"}

    assert tests == {(path, "tests/run_pytest.py") for path in glob(["tests/**/test_*.py"])}


def test_every_helper_of_the_tests_is_in_their_library() -> None:
    (support,) = [target for target in TARGETS if target.name == "test_support"]

    assert list(support.srcs) == sorted(
        set(glob(["tests/**/*.py"])) - set(glob(["tests/**/test_*.py"]))
    )


def test_no_file_imports_a_test_file() -> None:
    """Its target does not hold them: what tests share stands in files of another name."""
    found = [
        f"{path}: {module}"
        for path in glob(["tests/**/*.py", "tools/*.py"])
        for module in imported_modules(ROOT / path, "tests")
        if re.search(r"\.test_", module)
    ]

    assert found == []


def test_no_name_is_there_twice() -> None:
    names = [target.name for target in TARGETS]

    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("layer", LAYERS)
def test_deps_agree_with_imports(layer: str) -> None:
    (target,) = [target for target in TARGETS if target.name == layer]

    assert sorted(imports_of(target)) == sorted(target.deps)


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_down_only(layer: str) -> None:
    (target,) = [target for target in TARGETS if target.name == layer]

    assert sorted(target.deps - set(LAYERS[: LAYERS.index(layer)])) == []


@pytest.mark.parametrize("name", ["tf_amp_rewriter", "tf_amp_rewriter_main"])
def test_the_faces_depend_on_what_they_import(name: str) -> None:
    (target,) = [target for target in TARGETS if target.name == name]

    assert imports_of(target) <= target.deps


def test_bazel_reads_the_build_file(tmp_path: pathlib.Path) -> None:
    if shutil.which("bazel") is None:
        pytest.skip("bazel is not installed")
    # rules_python can't be downloaded here; what we load from it was built into older Bazels.
    rules = tmp_path / "rules_python" / "python"
    rules.mkdir(parents=True)
    (rules.parent / "WORKSPACE").touch()
    (rules / "BUILD").touch()
    (rules / "defs.bzl").write_text(
        "py_binary = native.py_binary\npy_library = native.py_library\npy_test = native.py_test\n"
    )
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "WORKSPACE").write_text(
        'local_repository(name = "rules_python", path = "../rules_python")\n'
    )
    for name in ("BUILD", "LICENSE", "README.md", PACKAGE, "pyproject.toml", "setup.py", "tests"):
        (workspace / name).symlink_to(ROOT / name)

    done = subprocess.run(
        ["bazel", f"--output_user_root={tmp_path}/out", "--batch", "query", "kind('py_.*', //:*)"],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(f"//:{target.name}" for target in TARGETS)


# --- the wheel -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    tree = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / PACKAGE, tree / PACKAGE, ignore=ignored)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tree)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"),
            *("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "dist", "."),
        ],
        cwd=tree,
        check=True,
    )
    (path,) = (tree / "dist").iterdir()
    return path


@pytest.fixture(scope="module")
def metadata(wheel: pathlib.Path) -> email.message.Message:
    return email.parser.Parser().parsestr(read(wheel, "METADATA"))


def read(wheel: pathlib.Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def test_name_and_version(metadata: email.message.Message) -> None:
    assert metadata["Name"].replace("-", "_") == PACKAGE
    assert metadata["Version"] == tf_amp_rewriter.__version__


def test_python_and_tensorflow_bounds(metadata: email.message.Message) -> None:
    needed = [text.replace(" ", "") for text in metadata.get_all("Requires-Dist", [])]

    assert metadata["Requires-Python"] == ">=3.10"
    assert {"tensorflow<3,>=2.15", "tensorflow>=2.15,<3"} & {
        text.replace("(", "").replace(")", "") for text in needed
    }


def test_the_dev_extra_is_pinned_for_the_tools(metadata: email.message.Message) -> None:
    extras = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" in text]

    assert metadata.get_all("Provides-Extra") == ["dev"]
    for tool in ("hypothesis", "mypy", "pytest", "ruff", "types-protobuf", "types-tensorflow"):
        assert sum(text.startswith(tool) and "==" in text.split(";")[0] for text in extras) == 1


def test_the_wheel_holds_every_module_and_data_file(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = sorted(name for name in archive.namelist() if name.startswith(f"{PACKAGE}/"))

    assert found == glob([f"{PACKAGE}/**/*.py", f"{PACKAGE}/**/*.json", f"{PACKAGE}/py.typed"])


def test_the_console_script_is_the_command_line(wheel: pathlib.Path) -> None:
    assert "tf_amp_rewriter = tf_amp_rewriter.cli:main" in read(wheel, "entry_points.txt")


def test_the_licence_is_in_the_wheel(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith("/LICENSE")]


def test_the_wheel_runs(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", PACKAGE, "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"{PACKAGE} {tf_amp_rewriter.__version__}\n",
        "",
    )
