"""What views of more than 8 bits and of other channels than three cost, beside those of 8-bit RGB.

    python benchmarks/channels.py [--device cpu] [--rounds 7] [--batch 16]

Each entry makes one float32 view of each of 16 canvases of noise, by the kernels that the device
has. Operators of colors give way to `band_jitter` where an image has other channels.
"""

import argparse
from functools import partial

import torch
from measure import alternate, report

from mast.augment import PRESETS, Canvases, Pipeline
from mast.core.memory import keep_freed_memory
from mast.core.reading import Layout

HEIGHT, WIDTH, SIZE = 375, 500, 224
RGB = "3 × 8 bits"
LAYOUTS = {
    f"{channels} × {16 if deep else 8} bits": Layout(channels, deep)
    for channels, deep in ((3, False), (3, True), (1, False), (1, True), (5, True), (13, True))
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as a training does
    device, count = torch.device(options.device), options.batch
    generator = torch.Generator().manual_seed(0)
    tables = {}
    for name in ("mast5", "mast15"):
        work = {}
        for kind, layout in LAYOUTS.items():
            length = count * 3 * layout.sheets * HEIGHT * WIDTH
            values_T = torch.randint(256, (length,), generator=generator, dtype=torch.uint8)
            sizes_B2 = torch.tensor([[HEIGHT, WIDTH]]).repeat(count, 1)
            canvases = Canvases.packed(values_T.to(device), sizes_B2, layout=layout)
            preset = PRESETS[name].of_channels(layout.channels)
            pipeline = Pipeline(preset.only(preset.operators), SIZE)
            records = pipeline.draw(count, torch.Generator().manual_seed(0))
            out = pipeline.buffer(count, device)
            work[kind] = partial(pipeline.views, canvases, records, out)
        seconds = alternate(work, options.rounds, device)
        views = 2 * count
        tables[f"{name}, {HEIGHT} × {WIDTH} to {SIZE} pixels"] = {
            kind: {key: value / views for key, value in of.items()} for kind, of in seconds.items()
        }
    setting = {"batch": count, "threads": 1, "rounds": options.rounds}
    stored = {kind: 3 * layout.sheets for kind, layout in LAYOUTS.items()}
    report("channels", device, setting, tables, "ms a view", RGB, bytes_a_pixel=stored)


if __name__ == "__main__":
    main()
