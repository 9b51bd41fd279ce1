"""Check an installed calibrank: the C loops are loaded, and a map survives a round trip."""

import tempfile
from pathlib import Path

import numpy as np

import calibrank as cr
from calibrank._internal import native


def main() -> None:
    """Fit, save, load and predict; fail loudly if the C loops are missing or differ."""
    if "site-packages" not in Path(cr.__file__).parts:
        raise SystemExit(f"calibrank must be installed, got {cr.__file__}")
    if not native.READY:
        raise SystemExit(f"the C loops must be in the wheel, got none in {native.SOURCE.parent}")
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200_000).astype(np.float32)
    labels = rng.random(len(scores)) < 1 / (1 + np.exp(-scores))
    fitted = cr.Platt().fit(scores, labels)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.json"
        fitted.save(path)
        loaded = cr.load(path)
    if not np.array_equal(loaded.predict(scores), fitted.predict(scores)):
        raise SystemExit("a loaded map must predict what the saved one did")
    if abs(float(fitted.predict([0.0])[0]) - 0.5) > 0.02:
        raise SystemExit("the fitted probability at score 0 must be near 0.5")
    print(f"calibrank {cr.__version__} with its C loops")


if __name__ == "__main__":
    main()
