# SPDX-License-Identifier: Apache-2.0
"""The commands, run in this process on a small program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tilelang
from tilelang.cli.main import app
from tilelang.cli.program import BadCommand, parse_settings
from tilelang.runtime.device import device_count

PROGRAM = """
import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[1])
def scale(n, factor=2.0, block=64):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                y[bx * block + i] = x[bx * block + i] * factor
    return main
"""


EAGER = """
import tilelang
import tilelang.language as T

@tilelang.jit
def double(A, block=64):
    n = T.const("n")
    A: T.Tensor((n,), "float32")
    C = T.empty((n,), "float32")
    with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] * 2.0
    return C
"""


SEVERAL = """
import tilelang
import tilelang.language as T

@tilelang.jit
def lazy(n):
    return factory(n)

def factory(n):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            T.clear(x)
    return main

program = factory(8)

def helper(x):
    return x

@tilelang.jit
def eager(A):
    n = T.const("n")
    A: T.Tensor((n,), "float32")
    with T.Kernel(1, threads=64):
        T.clear(A)
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cli") / "scale_program.py"
    path.write_text(PROGRAM)
    return f"{path}:scale"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_settings_are_python_literals_or_text() -> None:
    assert parse_settings(["n=4", "on=True", "dtype=bfloat16", "shape=(1, 2)"]) == {
        "n": 4,
        "on": True,
        "dtype": "bfloat16",
        "shape": (1, 2),
    }
    with pytest.raises(BadCommand, match="NAME=VALUE"):
        parse_settings(["n"])


def test_compile_prints_the_tile_program(where: str) -> None:
    result = call("compile", where, "--set", "n=256", "--emit", "tir")
    assert result.exit_code == 0 and "blockIdx.x" in result.output


def test_the_only_program_of_a_file_needs_no_name(where: str) -> None:
    result = call("compile", where.rpartition(":")[0], "--set", "n=256", "--emit", "tir")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("emit, expected", [("device", "threadIdx.x"), ("cuda", "__global__")])
def test_compile_for_a_gpu_that_is_not_there(where: str, tmp_path: Path, emit: str, expected: str) -> None:
    out = tmp_path / "out.txt"
    result = call("compile", where, "--set", "n=256", "--emit", emit, "--output", str(out))
    assert result.exit_code == 0, result.output
    assert expected in out.read_text()


def test_inspect(where: str) -> None:
    result = call("inspect", where, "--set", "n=256")
    assert result.exit_code == 0, result.output
    assert "registers a thread" in result.output and "shared memory: 0 bytes" in result.output


def test_run_and_check_on_the_cpu(where: str) -> None:
    result = call("run", where, "--set", "n=100", "--target", "cpu")
    assert result.exit_code == 0, result.output
    assert "(100,) float32, 100 of 100 finite" in result.output
    result = call("check", where, "--set", "n=100", "--target", "sim")
    assert result.exit_code == 0, result.output
    assert "y: agrees in 100 elements" in result.output and "verdict: no fault found" in result.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["compile", "{where}"], "needs --set for n"),
        (["compile", "{where}", "--set", "n=1", "--set", "m=1"], "no parameter m"),
        (["compile", "{where}x", "--set", "n=1"], "has no 'scalex'; it has scale"),
        (["compile", "nowhere.py:f"], "no such file"),
        (["layout", "{where}", "y", "--set", "n=1", "-o", "y.jpeg"], "a picture (.png, .svg, .pdf), got y.jpeg"),
        (["compile", "{where}", "--set", "n=1", "--emit", "cubin"], "--output"),
        (["compile", "{where}", "--set", "n=1", "--set", "n=2"], "--set gives n twice"),
        (["compile", "{where}", "--set", "n=1", "--emit", "foo"], "'foo' is not one of 'tir'"),
        (
            ["compile", "{where}", "--set", "n=1", "--target", "cuda:sm_42"],
            "unknown architecture 'sm_42'; known: sm_80",
        ),
        (["inspect", "{where}", "--set", "n=1", "--target", "cuda:foo"], "unknown target 'cuda:foo'; known: cuda"),
        (["inspect", "{where}", "--set", "n=1", "--target", "cpu"], "target cpu is no GPU and has no layouts"),
        (["compile", "{where}", "--set", "n=1", "--target", "cpu", "--emit", "ptx"], "is no GPU and has no ptx"),
        (["compile", "{folder}/several.py:nope"], "has no 'nope'; it has lazy, factory, program, eager"),
        (["compile", "{folder}/several.py:eager"], "needs --set for n: constants that its tensors' shapes give"),
        (["check", "{folder}/several.py:eager"], "needs --set for n: constants"),
        (["run", "{where}", "--set", "n=1", "--target", "foo"], "unknown target 'foo'"),
        (["run", "{where}"], "needs --set for n"),
        (["check", "{where}"], "needs --set for n"),
        (["compile", "{where}", "--set", "n=1", "--output", "/"], "Is a directory"),
        (["compile", "{folder}/syntax.py"], "SyntaxError: invalid syntax"),
        (["compile", "{folder}/missing.py:f"], "line 1 of missing.py: ModuleNotFoundError: No module named 'nowhere'"),
        (["compile", "{folder}/exits.py:f"], "SystemExit: 7"),
        (["compile", "{folder}/nothing.py"], "has no jit function and no program"),
        (["compile", "{folder}/fails.py:f"], "line 2 of fails.py: KeyError: 'n'"),
        (["explain", "TL0000"], "no error 'TL0000'; did you mean TL"),
        (["explain", "race"], "no error 'race'; did you mean race-wr or race-ww or race-rw?"),
        (["explain", "nonsense"], "no error 'nonsense'; codes are TL and four digits"),
    ],
)
def test_bad_command_lines(where: str, bad_files: Path, arguments: list[str], message: str) -> None:
    result = call(*(a.format(where=where, folder=bad_files) for a in arguments))
    assert result.exit_code == 2 and message in result.output, result.output


@pytest.mark.parametrize("command", ["compile", "inspect", "check"])
def test_an_environment_variable_that_cannot_be_read(where: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_WATCHDOG", "banana")
    result = call(command, where, "--set", "n=64")
    assert result.exit_code == 2
    assert result.stderr == "tilelang: environment variable TILELANG_WATCHDOG='banana': takes 1 or 0\n"


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    files = {
        "syntax": "def f(:",
        "missing": "import nowhere",
        "exits": "raise SystemExit(7)",
        "nothing": "x = 1",
        "fails": "def f():\n    return {}['n']",
        "several": SEVERAL,
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.skipif(device_count() > 0, reason="there is a device here")
def test_a_target_without_its_device(where: str) -> None:
    result = call("run", where, "--set", "n=1", "--target", "cuda")
    assert result.exit_code == 2 and "cannot run here" in result.output


def test_a_mistake_in_the_program_is_its_text_with_the_line(where: str) -> None:
    result = call("compile", where, "--set", "n=64", "--set", "block=0")
    assert result.exit_code == 1 and "error[TL1004]" in result.output and "scale_program.py:9:" in result.output


def test_the_cpu_target_has_its_own_code(where: str) -> None:
    result = call("compile", where, "--set", "n=64", "--target", "cpu")
    assert result.exit_code == 0 and "target triple" in result.output and "define" in result.output
    assert "prim_func" in call("compile", where, "--set", "n=64", "--target", "cpu", "--emit", "tir").output


def test_constants_of_an_eager_function_are_settings(tmp_path: Path) -> None:
    (tmp_path / "eager_program.py").write_text(EAGER)
    result = call("compile", f"{tmp_path}/eager_program.py:double", "--set", "n=64", "--emit", "tir")
    assert result.exit_code == 0 and "(64,)" in result.output


def test_explain_env_and_passes() -> None:
    assert "help:" in call("explain", "tl9001").output
    assert "TILELANG_TARGET" in call("env").output
    assert "infer_layouts" in call("passes").output


def test_a_fault_of_tilelang_says_so(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise KeyError("acc")

    monkeypatch.setattr("tilelang.codegen.cuda.check_resources", fail)
    monkeypatch.setenv("TILELANG_REPORT_DIR", str(tmp_path))
    result = call("compile", where, "--set", "n=128", "--emit", "cuda")
    assert result.exit_code == 70
    assert result.stderr.startswith(
        "internal error in lower_to_cuda: KeyError: 'acc'\nhelp: this is a fault of tilelang"
    )


STRIDED = """
import tilelang.language as T

def f(M, N, S):
    @T.prim_func
    def main(X: T.StridedTensor((M, N), (S, 1), "float16"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(M, 16), threads=64) as bx:
            for i, j in T.Parallel(16, N):
                if bx * 16 + i < M:
                    Y[bx * 16 + i, j] = X[bx * 16 + i, j] * 2
    return main
"""


def test_inputs_have_the_strides_that_a_kernel_declares(tmp_path: Path) -> None:
    (tmp_path / "strided.py").write_text(STRIDED)
    result = call("check", f"{tmp_path}/strided.py:f", "--set", "M=45", "--set", "N=51", "--set", "S=80")
    assert result.exit_code == 0 and "verdict: no fault found" in result.output, result.output


def test_trace(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(PROGRAM)
    where = [f"{path}:scale", "--set", "n=256"]
    listed = CliRunner().invoke(app, ["trace", *where])
    assert listed.exit_code == 0 and "lower_tile_ops" in listed.output and "carry_nibbles" not in listed.output
    assert "carry_nibbles" in CliRunner().invoke(app, ["trace", *where, "--all"]).output
    assert "+++ behind lower_tile_ops" in CliRunner().invoke(app, ["trace", *where, "--pass", "lower_tile_ops"]).output
    assert "changes nothing" in CliRunner().invoke(app, ["trace", *where, "--pass", "carry_nibbles"]).output
    unknown = CliRunner().invoke(app, ["trace", *where, "--pass", "lower_tile_op"])
    assert unknown.exit_code == 2 and "did you mean lower_tile_ops?" in unknown.output
    cpu = CliRunner().invoke(app, ["trace", *where, "--target", "cpu"])
    assert cpu.exit_code == 2 and "target cpu is no GPU and has no passes" in cpu.output
    assert CliRunner().invoke(app, ["trace", *where, "-o", str(tmp_path / "trace.html")]).exit_code == 0
    assert "lower_tile_ops" in (tmp_path / "trace.html").read_text()


def test_autodd(tmp_path: Path) -> None:
    path, small = tmp_path / "failing.py", tmp_path / "small.py"
    (tmp_path / "beside.py").write_text("WORD = 'boom'\n")
    path.write_text("import sys, beside\nx = 1\nif len(sys.argv) > 1:\n    raise SystemExit(beside.WORD + ' there')\n")
    found = CliRunner().invoke(app, ["autodd", str(path), "--error", "boom", "-o", str(small), "--", "word"])
    assert found.exit_code == 0, found.output
    assert "x" not in small.read_text().splitlines() and len(small.read_text().splitlines()) <= 3
    other = CliRunner().invoke(app, ["autodd", str(path), "--error", "something else"])
    assert other.exit_code == 2 and "does not fail as told" in other.output
    assert CliRunner().invoke(app, ["autodd", str(tmp_path / "none.py"), "--error", "x"]).exit_code == 2
    (tmp_path / "text.py").write_text("no python here\n")
    assert CliRunner().invoke(app, ["autodd", str(tmp_path / "text.py"), "--error", "x"]).exit_code == 2


def test_a_script_takes_a_target_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_TARGET", "cpu")  # taken back behind the test, whatever the command sets
    path = tmp_path / "script.py"
    path.write_text("from tilelang.jit import resolve_target\nprint('for', resolve_target())\n")
    assert "for sim:sm_80" in call("run", str(path), "--target", "sim:sm_80").output
    found = call("run", str(path), "--set", "n=3")
    assert found.exit_code == 2 and "--set is for the arguments of a factory" in found.output


def test_the_version() -> None:
    assert call("--version").output.strip() == f"tilelang {tilelang.__version__}"


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tilelang", "--help"], capture_output=True, text=True, check=True)
    assert "autodd" in done.stdout
