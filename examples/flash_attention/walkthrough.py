# SPDX-License-Identifier: Apache-2.0
"""The attention example, end to end: what `make run` shows.

Takes the tile program of example_mha_fwd_bhsd.py, compiles it for sm_90a, prints what was decided (layouts, pipeline,
instructions) with a few lines of the CUDA that came out, then runs it on the GPU, or on the CPU where there is none,
and compares with torch. `--simulate` also runs the sm_90a program thread for thread on the simulator.
"""

from __future__ import annotations

import argparse
import re
import time

import torch
from example_mha_fwd_bhsd import check, flashattn, flops, fused, make_inputs

import tilelang
from tilelang.cli.emit import cubin_of, emit
from tilelang.tools.report import inspect_program
from tilelang.tools.resources import describe_resources

ARCH = "sm_90a"
SHAPE = {"batch": 1, "heads": 12, "seq_q": 2048, "seq_kv": 2048, "dim": 64, "is_causal": True}
# Lines of CUDA worth a look: the copy engine, the tensor cores, and the barriers between them.
TELLING = re.compile(r"tl_(tma_load|wgmma|mbar_(init|arrive|expect|wait)|setmaxnreg|tma_store)\w*\(")


def heading(text: str) -> None:
    print(f"\n== {text}")


def show_compilation(shape: dict[str, int]) -> None:
    """What the compiler makes of the program, without a device."""
    start = time.perf_counter()
    program = flashattn.get_tir(**shape)
    heading(f"the tile program for {ARCH}: layouts, instructions, pipeline")
    print(inspect_program(program, ARCH).text())

    heading("some lines of its CUDA")
    body = emit(program, ARCH, "cuda").split("__global__")[-1].splitlines()
    seen: set[str] = set()
    for number, line in enumerate(body):
        found = TELLING.search(line)
        if found and found.group() not in seen:
            seen.add(found.group())
            print(f"{number:5d}  {line.strip()[:150]}")

    heading("the assembler's report")
    print(describe_resources(cubin_of(program, ARCH)))
    print(f"all of this took {time.perf_counter() - start:.1f} s")


def show_simulation() -> None:
    """The same device program on a small shape, every thread on numpy."""
    shape = {**SHAPE, "heads": 1, "seq_q": 128, "seq_kv": 128, "block_M": 64, "block_N": 64, "threads": 128}
    heading("the sm_90a program on the simulator, 128 tokens")
    kernel = flashattn.with_options(target="sim").compile(**shape)
    inputs = tuple(x.cpu() for x in make_inputs(1, 1, 128, 128, 64))
    print(f"largest error against float32: {check(kernel, inputs, True):.2e}")


def show_run(shape: dict[str, int]) -> None:
    """The kernel on this machine's device, against torch."""
    kernel = flashattn(**shape)
    inputs = make_inputs(*(shape[k] for k in ("batch", "heads", "seq_q", "seq_kv", "dim")))
    heading(f"running {shape['heads']} heads of {shape['seq_q']} tokens on {kernel.target}")
    causal = bool(shape["is_causal"])
    print(f"largest error against float32: {check(kernel, inputs, causal):.2e} (allowed: 1e-2)")
    total = flops(*(shape[k] for k in ("batch", "heads", "seq_q", "seq_kv", "dim")), causal)
    for name, call in {"tile program": lambda: kernel(*inputs), "torch, fused": lambda: fused(*inputs, causal)}.items():
        ms = tilelang.profiler.do_bench(call, warmup=3, rep=12, return_mode="median")
        print(f"{name:14s} {ms:9.4f} ms {total / ms * 1e-9:9.2f} TFLOP/s")
    if kernel.target.kind != "cuda":
        print("no GPU here: the CPU ran the meaning of the program, so read no speed from these times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="also run the sm_90a program on the simulator")
    args = parser.parse_args()
    show_compilation(SHAPE)
    if args.simulate:
        show_simulation()
    show_run(SHAPE if torch.cuda.is_available() else {**SHAPE, "heads": 2, "seq_q": 256, "seq_kv": 256})


if __name__ == "__main__":
    main()
