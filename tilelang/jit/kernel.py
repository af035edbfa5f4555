# SPDX-License-Identifier: Apache-2.0
"""The compiled kernel that users hold: call it, look into it, measure it, export it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilelang.jit.executable import Executable
from tilelang.jit.signature import named_handles
from tilelang.jit.target import device_type
from tilelang.runtime.allocate import OutputAllocator
from tilelang.runtime.arguments import count_error
from tilelang.runtime.ndarray import has_arrays, has_numpy, with_numpy
from tilelang.runtime.signature import KernelParam, Signature
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["JITKernel"]


class JITKernel:
    """A compiled kernel. Calling it takes the inputs in parameter order and gives the outputs.

    One output is returned as a tensor, several as a list; without outputs the result is an empty list. Outputs are
    allocated on the device of the first tensor input. Inputs may be given by name. Where kernels run in host memory
    (cpu, sim) they may be numpy arrays; without a torch tensor among them the outputs are arrays as well. A wrong
    number of inputs is a `ValueError`, an unknown name a `TypeError`.

    A kernel never changes: its copy is itself. Pickled, it is its program and options, compiled again (or found in the
    cache) where it is loaded.
    """

    def __init__(
        self,
        prim_func: Any,
        signature: Signature,
        target: Target,
        options: CompileOptions,
        executable: Executable,
    ) -> None:
        self._func = prim_func
        self.signature = signature
        self.target = target
        self.options = options
        self.adapter = executable
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self.config: dict[str, Any] | None = None
        run = getattr(executable, "run", None)
        self._run: Callable[..., Any] = run or _AllocatingCall(executable, signature, device_type(target))

    @property
    def prim_func(self) -> Any:
        """The tile program, its parameters named as callers know them: scalars by name, tensors `A_handle`."""
        return named_handles(self._func)

    @property
    def out_idx(self) -> list[int]:
        return list(self.signature.outputs[: len(self.signature.outputs) - self.signature.hidden])

    @property
    def params(self) -> list[KernelParam]:
        every = self.signature.params()
        return every[: len(every) - self.signature.hidden]

    @property
    def artifact(self) -> Executable:
        """What the target made of the program, with its sources; the same as `adapter`."""
        return self.adapter

    @property
    def torch_function(self) -> JITKernel:
        """What takes and gives tensors: the kernel itself."""
        return self

    def torch_op(self, name: str) -> Any:
        """The kernel as an operator `torch.ops.namespace.name`, which `torch.compile` does not look into. `name` is
        "namespace::name". A `torch.library.CustomOpDef`: called as it is, given a gradient by `register_autograd`.

        Raises `ValueError` for other names, and for kernels that reach memory by address.
        """
        from tilelang.jit.torch_op import make_operator

        return make_operator(self, self._func, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> JITKernel:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from tvm import ir

        from tilelang.jit.driver import rebuild

        return rebuild, (ir.save_json(self._func), self.signature.outputs, str(self.target), self.options)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named:
            inputs = self._in_order(inputs, named)
        try:
            return self._run(*inputs)
        except TypeError as error:
            if self.target.kind == "cuda" and has_arrays(inputs):
                raise TypeError(f"{error}; a GPU takes no numpy arrays: pass torch.from_numpy(x).cuda()") from None
            raise

    def _in_order(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Inputs by position, those given by name behind the others."""
        names = [self.signature.args[i].name for i in self.signature.inputs]
        for name in named:
            if name not in names:
                raise TypeError(f"{self.signature.name}() has no input '{name}'; its inputs are {', '.join(names)}")
            if name in names[: len(inputs)]:
                raise TypeError(f"{self.signature.name}() got input '{name}' twice, by position and by name")
        rest = names[len(inputs) :]
        missing = [n for n in rest if n not in named]
        if missing:
            raise TypeError(f"{self.signature.name}() lacks the input '{missing[0]}'")
        return (*inputs, *(named[n] for n in rest))

    # Looking into it.

    @property
    def kernel_source(self) -> str:
        return self.adapter.kernel_source

    @property
    def host_source(self) -> str:
        return self.adapter.host_source

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """Device source; with `kernel_only=False` followed by the host side."""
        return self.adapter.get_kernel_source(kernel_only)

    def get_host_source(self) -> str:
        return self.adapter.get_host_source()

    def show_source(self, which: str = "kernel") -> None:
        """Prints the kernel's, the host's, or both sources."""
        import sys

        sys.stdout.write(self._source(which) + "\n")

    def _source(self, which: str) -> str:
        match which:
            case "kernel":
                return self.get_kernel_source()
            case "host":
                return self.get_host_source()
            case "both":
                return self.get_kernel_source(kernel_only=False)
        raise ValueError(f"which is kernel, host or both, got {which!r}")

    def export_sources(self, kernel_path: str | None = None, host_path: str | None = None) -> None:
        """Writes the sources to the paths given."""
        if kernel_path is None and host_path is None:
            raise ValueError("export_sources needs kernel_path, host_path or both")
        for path, text in ((kernel_path, self.adapter.kernel_source), (host_path, self.adapter.host_source)):
            if path is not None:
                _write(path, text)

    def get_ptx(self) -> str:
        return self.adapter.ptx()

    def get_sass(self) -> str:
        return self.adapter.sass()

    def show_ptx(self) -> None:
        import sys

        sys.stdout.write(self.get_ptx() + "\n")

    def show_sass(self) -> None:
        import sys

        sys.stdout.write(self.get_sass() + "\n")

    def export_ptx(self, path: str) -> None:
        _write(path, self.get_ptx())

    def export_sass(self, path: str) -> None:
        _write(path, self.get_sass())

    def export_library(self, path: str) -> None:
        """Writes a folder that `tilelang.runtime.load(path)` runs without the compiler."""
        self.adapter.save(Path(path))

    # Measuring it.

    def get_profiler(self, tensor_supply_type: Any = None) -> Any:
        """A `tilelang.profiler.Profiler` that supplies tensors of this kind (default Auto)."""
        from tilelang.profiler import Profiler, TensorSupplyType

        supply = TensorSupplyType.Auto if tensor_supply_type is None else tensor_supply_type
        return Profiler(self, supply)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        return self.get_profiler().run_once(func)

    def get_tuner_result(self) -> tuple[float, dict[str, Any] | None, float | None]:
        """Latency in ms, configuration and reference latency that the tuner set. Raises `ValueError` where it has not
        run.
        """
        if self.latency is None:
            why = ": its configuration was ranked by an estimate, where no GPU was" if self.config is not None else ""
            raise ValueError(f"this kernel was not tuned{why}")
        return self.latency, self.config, self.ref_latency

    def update_tuner_result(
        self, latency: float, config: dict[str, Any], ref_latency: float | None = None
    ) -> JITKernel:
        """Leaves the result of a search of one's own on the kernel: times in ms."""
        self.latency, self.config, self.ref_latency = latency, config, ref_latency
        return self

    def __repr__(self) -> str:
        return f"JITKernel({self.signature.describe()}, target={self.target})"


class _AllocatingCall:
    """Calls an executable that takes all arguments: allocates the outputs, returns them."""

    def __init__(self, executable: Executable, signature: Signature, device: str) -> None:
        self._executable = executable
        self._signature = signature
        self._input_count = len(signature.inputs)
        self._allocator = OutputAllocator(signature, device)

    def __call__(self, *inputs: Any) -> Any:
        if has_numpy(inputs):
            return with_numpy(self._call, self._signature, inputs)
        return self._call(*inputs)

    def _call(self, *inputs: Any) -> Any:
        if len(inputs) != self._input_count:
            raise count_error(self._signature, len(inputs))
        args, outputs = self._allocator.complete(inputs)
        self._executable(*args)
        return self._signature.returned(outputs)


def _write(path: str, text: str) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
