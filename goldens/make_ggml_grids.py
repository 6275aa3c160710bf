"""Makes k-quants/src/grids/{two,three,one}.rs: ggml's codebooks, as the `gguf` Python package has them.

Run from this directory: python make_ggml_grids.py && cargo fmt
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import quants

OUT = Path("../k-quants/src/grids")
NOTE = f"//! Made by `goldens/make_ggml_grids.py` from the `gguf` Python package {version('gguf')}. `super` says how an entry is read.\n"


def packed(cls):
    """One integer a grid point: weight i has bits 2i and 2i + 1, or 3i to 3i + 2."""
    cls.init_grid()
    bits = 2 if len(cls.grid_map) == 3 else 3
    codes = np.argmax(cls.grid.reshape((-1, cls.grid_shape[1]))[..., None] == np.array(cls.grid_map), axis=-1)
    return [sum(int(code) << (bits * i) for i, code in enumerate(point)) for point in codes]


def table(name, docs, cls):
    numbers = packed(cls)
    text = ", ".join(f"{n:#06x}" for n in numbers)
    return f"\n/// {docs}\n#[rustfmt::skip]\npub static {name}: [u16; {len(numbers)}] = [\n" + "".join(
        "    " + ", ".join(f"{n:#06x}" for n in numbers[at : at + 13]) + ",\n" for at in range(0, len(numbers), 13)
    ) + "];\n"


files = {
    "two.rs": ("The grids of the 2-bit codebooks.", [
        ("IQ2_XXS", "The 256 points of IQ2_XXS, of eight codes of 2 bits.", quants.IQ2_XXS),
        ("IQ2_XS", "The 512 points of IQ2_XS, of eight codes of 2 bits.", quants.IQ2_XS),
        ("IQ2_S", "The 1024 points of IQ2_S, of eight codes of 2 bits.", quants.IQ2_S),
    ]),
    "three.rs": ("The grids of the 3-bit codebooks.", [
        ("IQ3_XXS", "The 256 points of IQ3_XXS, of four codes of 3 bits.", quants.IQ3_XXS),
        ("IQ3_S", "The 512 points of IQ3_S, of four codes of 3 bits.", quants.IQ3_S),
    ]),
    "one.rs": ("The grid of the 1-bit codebooks.", [
        ("IQ1", "The 2048 points of IQ1_S and IQ1_M, of eight codes of 2 bits.", quants.IQ1_S),
    ]),
}
for file, (title, tables) in files.items():
    (OUT / file).write_text(f"//! {title}\n//!\n{NOTE}" + "".join(table(*t) for t in tables))
