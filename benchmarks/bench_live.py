"""The live link's rate and jitter: receives `dropsim live` for half a minute at 30 and at 60 Hz."""

import socket
import subprocess
import sys
import time

import numpy as np

from dropsim.apps.live import messages_of

SECONDS = 30.0


def intervals(rate: int) -> np.ndarray:
    """Times between the ends of frames as they arrive [s]."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", 0))
        end.settimeout(600.0)  # Kernels may have to be compiled first.
        options = ["--vmc", str(end.getsockname()[1]), "--rate", str(rate), "--seconds", str(SECONDS)]
        link = subprocess.Popen([sys.executable, "-m", "dropsim", "live", *options], stdout=subprocess.DEVNULL)
        times = []
        while link.poll() is None:
            try:
                packet = end.recv(65536)
            except TimeoutError:
                break
            now = time.perf_counter()
            times += [now for address, _ in messages_of(packet) if address == "/VMC/Ext/Blend/Apply"]
            end.settimeout(1.0)
    return np.diff(times)


for rate in (30, 60):
    found = 1000 * intervals(rate)
    late = np.abs(found - 1000 / rate)
    shares = ", ".join(f"{np.quantile(late, share):.2f} ({100 * share:g} %)" for share in (0.5, 0.95, 0.99, 1.0))
    print(
        f"{rate} Hz: {1000 / found.mean():.2f} frames a second over {found.sum() / 1000:.0f} s; off the beat by [ms] {shares}"
    )
