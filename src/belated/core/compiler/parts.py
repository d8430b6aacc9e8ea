"""Kernels within kernels: a kernel that another one calls is compiled with it, not by itself.

Numba by itself optimises every function that a kernel calls, emits machine code for it, and does
so again for its callers and for theirs, although only the outermost of them is ever run. Here a
kernel has two faces. Called from Python it is a ``Kernel``, optimised and emitted as a whole.
Called from another kernel it is a part: its code is handed to the caller as it is. This halves the
time to compile and changes no result.
"""

import sys
from functools import cache, cached_property
from threading import Timer
from typing import Any

from numba import jit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.environment import lookup_environment
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import AnnotateTypes, NativeLowering

from belated.core.compiler.kernel_cache import KernelCache

if not hasattr(CPUTargetOptions, "_nrt"):
    raise ImportError("Numba has no option _nrt")
LONG = 3.0  # seconds that nobody has to wait without being told why


class Kernel(CPUDispatcher):  # type: ignore[misc]  # Numba is untyped
    """A compiled function as Python calls it."""

    def __init__(
        self, py_func: Any, locals: Any = None, targetoptions: dict[str, Any] | None = None
    ) -> None:
        options = {"no_cfunc_wrapper": True, **(targetoptions or {})}
        super().__init__(py_func, locals, {"nopython": True, **options}, _WholeCompiler)
        self._cache = KernelCache(py_func)

    def compile(self, sig: Any) -> Any:
        """Compile, or load the code that was compiled before; a long wait is announced."""
        patience = Timer(LONG, _announce)
        patience.daemon = True
        patience.start()
        try:
            return super().compile(sig)
        finally:
            patience.cancel()

    @cached_property
    def _part(self) -> CPUDispatcher:
        return jit(**as_part(self.targetoptions))(self.py_func)

    def is_there(self, arguments: tuple[Any, ...]) -> bool:
        """Returns whether the machine code for arguments of these types is in memory or on disk."""
        signature = tuple(map(self.typeof_pyval, arguments))
        return signature in self.overloads or self._cache.holds(signature, self.targetctx)

    @property
    def _numba_type_(self) -> Any:
        """The Numba type of this kernel, for other kernels that call it."""
        return types.Dispatcher(self._part)


@cache
def _announce() -> None:
    """Write once to the user why nothing seems to happen."""
    line = "belated: compiling, once for this version and these types; this may take a minute"
    print(line, file=sys.stderr, flush=True)


def as_part(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of Numba's ``jit`` for a function that only other kernels call."""
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return {**options, **wrappers, "pipeline_class": _PartCompiler}


def load_compiler() -> None:
    """Load the parts of Numba that are needed to read a compiled kernel: takes about a second."""
    cpu_target.target_context.refresh()


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a part, which is neither optimised nor emitted: its callers take it in whole."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Returns zero, which Numba takes for "cannot be called from Python"."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> "_PartLibrary":
        """Returns the stand-in for the engine, of which Numba calls ``set_env`` only."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: the engine does not hold the code of a part."""


@register_pass(mutates_CFG=False, analysis_only=False)
class _KeepAsPart(LoweringPass):  # type: ignore[misc]
    """A pass that says, before code is generated, that it becomes a part."""

    _name = "belated_keep_as_part"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


@register_pass(mutates_CFG=False, analysis_only=False)
class _SetEnvironments(LoweringPass):  # type: ignore[misc]
    """Hands the constants of the parts, such as error messages, to the kernel they are now in."""

    _name = "belated_set_environments"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for variable in state.library._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                state.library.codegen.set_env(variable.name, environment)
        return False


class _PartCompiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_KeepAsPart, AnnotateTypes)
        passes.finalize()
        return [passes]


class _WholeCompiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_SetEnvironments, NativeLowering)
        passes.finalize()
        return [passes]
